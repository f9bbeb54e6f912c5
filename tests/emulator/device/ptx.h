// One function for every PTX instruction that the kernels use, named for it (. and :: become _). The translator turns
// asm statements into calls: destinations come first, addresses as integers. An instruction that is missing here does
// not compile: add it.
#pragma once

#include "numbers.h"
#include "runtime.h"

namespace emu {

struct Sink {};  // the destination _

inline u64 address(const volatile void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
inline u32 address(u32 shared) { return shared; }
inline u32 address(int shared) { return static_cast<u32>(shared); }

template <typename T>
inline volatile T* global(u64 address) {
  if (address % sizeof(T)) fail("a global access of %u bytes at %llx is not aligned", unsigned(sizeof(T)), address);
  return reinterpret_cast<volatile T*>(address);
}

namespace ptx {

// --- mbarrier ---

inline void mbarrier_init_shared_b64(u32 barrier, u32 arrivals) { mbarrier_init(barrier, arrivals); }
template <typename State>
inline void mbarrier_arrive_shared_b64(State&&, u32 barrier) {
  mbarrier_arrive(barrier, 0);
}
inline void mbarrier_arrive_expect_tx_shared_b64(Sink, u32 barrier, u32 bytes) { mbarrier_arrive(barrier, bytes); }
inline void mbarrier_test_wait_parity_shared_b64(bool& done, u32 barrier, u32 parity) {
  done = mbarrier_done(barrier, parity);
}
inline void mbarrier_try_wait_parity_shared_b64(bool& done, u32 barrier, u32 parity) {
  done = mbarrier_done(barrier, parity);
}

// --- loads and stores ---

inline void st_relaxed_gpu_global_b64(u64 address, u64 bits) { *global<u64>(address) = bits; }
inline void st_relaxed_gpu_global_v2_b64(u64 address, u64 a, u64 b) {
  if (address % 16) fail("a pair of packets at %llx is not aligned", address);
  *global<u64>(address) = a;
  *global<u64>(address + 8) = b;
}
inline void ld_relaxed_gpu_global_b64(u64& bits, u64 address) {
  bits = *global<u64>(address);
  looked();
}
inline void ld_relaxed_gpu_global_v2_b64(u64& a, u64& b, u64 address) {
  if (address % 16) fail("a pair of packets at %llx is not aligned", address);
  a = *global<u64>(address);
  b = *global<u64>(address + 8);
  looked();
}
inline void setp_ne_s32(bool& result, int a, int b) { result = a != b; }
inline void ld_global_nc_s32(int& word, u64 address) { word = *global<int>(address); }
template <typename T>
inline void ld_global_nc_v4_s32(T& x, T& y, T& z, T& w, u64 address) {
  if (address % 16) fail("a load of 16 bytes at %llx is not aligned", address);
  const volatile T* words = global<T>(address);
  x = words[0], y = words[1], z = words[2], w = words[3];
}
inline void prefetch_global_L1(u64) {}
inline void prefetch_global_L2(u64) {}
inline void fence_acq_rel_gpu() {}
inline void fence_proxy_async() {}

// --- copies ---

inline void createpolicy_fractional_L2_evict_first_b64(u64& policy, double) { policy = 1; }
inline void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes_L2_cache_hint(
    u32 target, u64 source, u32 bytes, u32 barrier, u64) {
  copy_bulk(target, reinterpret_cast<const u8*>(source), bytes, barrier);
}
inline void cp_async_bulk_prefetch_L2_global_L2_cache_hint(u64, u32, u64) {}
inline void cp_async_cg_shared_global_L2_cache_hint(u32 target, u64 source, u32 bytes, u64) {
  copy_async(target, reinterpret_cast<const u8*>(source), bytes);
}
inline void cp_async_mbarrier_arrive_noinc_shared_b64(u32 barrier) { copy_async_arrive(barrier); }

// --- arithmetic ---

inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.f, x) : x; }
inline void rsqrt_approx_ftz_f32(float& y, float x) { y = 1.f / std::sqrt(flushed(x)); }
inline void ex2_approx_ftz_f32(float& y, float x) { y = flushed(std::exp2(flushed(x))); }
inline void cvt_rn_bf16x2_f32(u32& packed, float high, float low) { packed = to_bf16(high) << 16 | to_bf16(low); }
inline void cvt_rn_f16x2_f32(u32& packed, float high, float low) { packed = to_fp16(high) << 16 | to_fp16(low); }
inline void cvt_u16_u32(unsigned short& half, u32 bits) { half = static_cast<unsigned short>(bits); }
inline void cvt_f32_f16(float& value, unsigned short half) { value = from_fp16(half); }
inline void selp_u32(u32& result, u32 a, u32 b, bool which) { result = which ? a : b; }
template <typename T>
inline void mov_u64(T& result, u64 value) {
  result = static_cast<T>(value);
}
inline u64 globaltimer() { return static_cast<u64>(clock()); }

// --- a block's threads, a warp's lanes ---

inline void bar_sync(u32 id, u32 threads) { block_barrier(id, threads); }
inline void bar_sync(u32 id) { block_barrier(id, 0); }
inline void bar_arrive(u32 id, u32 threads) { block_barrier_arrive(id, threads); }

// See mma.cpp.
#define EMU_MMA(name)                                                                                                \
  void name(                                                                                                         \
      float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, float c0, float c1, \
      float c2, float c3)
EMU_MMA(mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32);
EMU_MMA(mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32);

}  // namespace ptx
}  // namespace emu
