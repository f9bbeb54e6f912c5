// The part of CUDA C++ that the kernels use, for the host's compiler.
#pragma once

#include <math.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "numbers.h"
#include "ptx.h"
#include "runtime.h"

// After the standard headers, which have other uses for some of these names.
#define __device__
#define __host__
#define __global__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define __builtin_assume(condition) static_cast<void>(0)

#define threadIdx (::emu::thread_index)
#define blockIdx (::emu::block_index)
#define blockDim (::emu::block_size)
#define gridDim (::emu::grid_size)

struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

#define EMU_MIN_MAX(T)                                     \
  inline T min(T a, T b) { return b < a ? b : a; }         \
  inline T max(T a, T b) { return a < b ? b : a; }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
EMU_MIN_MAX(float)
#undef EMU_MIN_MAX

inline float __int_as_float(int bits) { return emu::as_float(static_cast<unsigned>(bits)); }
inline float __uint_as_float(unsigned bits) { return emu::as_float(bits); }
inline int __float_as_int(float value) { return static_cast<int>(emu::as_bits(value)); }
inline unsigned __float_as_uint(float value) { return emu::as_bits(value); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdividef(float a, float b) { return std::fabs(b) > 0x1p126f && std::isfinite(b) ? 0.f : a / b; }
inline float __expf(float x) { return std::exp(x); }
inline float rsqrtf(float x) { return 1.f / std::sqrt(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }

template <typename T>
inline T __ldg(const T* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignof(T)) emu::fail("__ldg of %p is not aligned", address);
  return *address;
}
inline std::size_t __cvta_generic_to_shared(const void* pointer) { return emu::shared_address_of(pointer); }

// --- warps ---

namespace emu {
template <typename T>
inline T from_lane(unsigned mask, T value, int source) {
  static_assert(sizeof(T) == 4, "shuffles of 32 bits");
  Brought mine{};
  std::memcpy(mine.words, &value, 4);
  T result;
  std::memcpy(&result, meet(Meeting::kShuffle, mask, mine)[source & 31].words, 4);
  return result;
}
inline unsigned ballot(unsigned mask, bool predicate) {
  const Brought* all = meet(Meeting::kVote, mask, {{predicate}});
  unsigned votes = 0;
  for (int lane = 0; lane < 32; lane++) votes |= (mask >> lane & 1) && all[lane].words[0] ? 1u << lane : 0;
  return votes;
}
template <typename Pick>
inline unsigned reduce(unsigned mask, unsigned value, Pick pick) {
  const Brought* all = meet(Meeting::kReduce, mask, {{value}});
  unsigned result = value;
  for (int lane = 0; lane < 32; lane++)
    if (mask >> lane & 1) result = pick(result, all[lane].words[0]);
  return result;
}
}  // namespace emu

inline void __syncwarp(unsigned mask = ~0u) { emu::meet(emu::Meeting::kSync, mask, {}); }
template <typename T>
inline T __shfl_sync(unsigned mask, T value, int source) {
  return emu::from_lane(mask, value, source);
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return emu::from_lane(mask, value, emu::lane_id() ^ bits);
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
  const int lane = emu::lane_id(), source = lane + static_cast<int>(distance);
  return emu::from_lane(mask, value, source < 32 ? source : lane);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
  const int lane = emu::lane_id(), source = lane - static_cast<int>(distance);
  return emu::from_lane(mask, value, source >= 0 ? source : lane);
}
inline unsigned __ballot_sync(unsigned mask, bool predicate) { return emu::ballot(mask, predicate); }
inline int __any_sync(unsigned mask, bool predicate) { return emu::ballot(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, bool predicate) { return emu::ballot(mask, predicate) == mask; }
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return emu::reduce(mask, value, [](unsigned a, unsigned b) { return a < b ? b : a; });
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value) {
  return emu::reduce(mask, value, [](unsigned a, unsigned b) { return a < b ? a : b; });
}

// --- blocks, memory, time ---

inline void __syncthreads() { emu::block_barrier(0, 0); }
inline void __threadfence_block() {}
inline void __threadfence() {}
inline void __threadfence_system() {}
inline void __trap() { emu::trap(); }
inline long long clock64() { return emu::clock(); }
inline int atomicCAS_system(int* address, int expected, int value) {
  const int old = *address;
  if (old == expected) *address = value;
  return old;
}
inline int atomicOr_system(int* address, int bits) {
  const int old = *address;
  *address = old | bits;
  return old;
}

// --- launching: the arguments are copied when the launch begins ---

namespace emu {
template <typename... Args, std::size_t... I>
std::function<void()> prepared(void (*kernel)(Args...), void** arguments, std::index_sequence<I...>) {
  std::tuple<std::remove_cv_t<Args>...> copies{*static_cast<std::remove_cv_t<Args>*>(arguments[I])...};
  return [kernel, copies] { std::apply(kernel, copies); };
}
template <typename... Args>
std::function<void()> prepared(void (*kernel)(Args...), void** arguments) {
  return prepared(kernel, arguments, std::index_sequence_for<Args...>{});
}
}  // namespace emu

#define EMU_KERNEL(name)                                                                           \
  extern "C" __attribute__((visibility("default"))) void emu_bind_##name(                          \
      void** arguments, std::function<void()>* kernel) {                                           \
    *kernel = ::emu::prepared(name, arguments);                                                    \
  }
