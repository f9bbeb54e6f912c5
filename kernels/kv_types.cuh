// K/V element types: how a fragment of 16 positions x 16 dims is laid out, loaded and multiplied.
//
// K block as B operand of Q K^T (k = dims, n = positions), V block as B operand of P V (k = positions, n = dims), both
// lane-major in fragment order, so that a thread's fragment for two n-blocks of 8 is one (fp32: two) 16-byte loads.
//
// Element (position p, dim d) of a fragment of K is in thread (p % 8) * 4 + d % 8 / 2, register p / 8 * 2 + d / 8,
// half d % 2; of V in thread (d % 8) * 4 + p % 8 / 2, register d / 8 * 2 + p / 8, half p % 2.
#pragma once

#include "splits.cuh"

namespace amk {

// Two halves of 16 bits: T is Fp16 or Bf16.
template <typename T>
struct HalfKv {
  using Mma = T;
  static constexpr int kTerms = 1;
  static constexpr int kFragmentBytes = 512;
  using Element = unsigned short;
  struct Fragment {
    uint4 term[kTerms];
  };
  // `mine`: the fragment's address plus 16 bytes for each thread before this one.
  static __device__ __forceinline__ Fragment load(const u8* mine) { return {{*reinterpret_cast<const uint4*>(mine)}}; }

  // Bytes from the start of a fragment, as sums of a part of p and one of d.
  static __device__ __forceinline__ u32 key_offset(u32 p, u32 d) {
    return (p % 8 * 64 + p / 8 * 8) + (d % 8 / 2 * 16 + d % 16 / 8 * 4 + d % 2 * 2);
  }
  static __device__ __forceinline__ u32 value_offset(u32 p, u32 d) {
    return (p % 8 / 2 * 16 + p / 8 * 4 + p % 2 * 2) + (d % 8 * 64 + d % 16 / 8 * 8);
  }

  static __device__ __forceinline__ Element element(float value) { return static_cast<Element>(T::pack(value, 0.f)); }
  static __device__ __forceinline__ bool finite(Element bits) { return (bits & T::kInfinity) != T::kInfinity; }
  // A register of a fragment.
  static __device__ __forceinline__ void store_pair(u8* address, float a, float b) {
    *reinterpret_cast<u32*>(address) = T::pack(a, b);
  }
};

// fp32 rows are kept exactly and enter the tensor cores as bf16 high and low parts, like every other activation.
struct FloatKv {
  using Mma = Bf16;
  static constexpr int kTerms = 2;
  static constexpr int kFragmentBytes = 1024;
  using Element = float;
  struct Fragment {
    uint4 term[kTerms];
  };
  static __device__ __forceinline__ Fragment load(const u8* mine) {
    const float4 first = *reinterpret_cast<const float4*>(mine);
    const float4 second = *reinterpret_cast<const float4*>(mine + 512);
    Fragment result;
    set(result, 0, first.x, first.y);
    set(result, 1, first.z, first.w);
    set(result, 2, second.x, second.y);
    set(result, 3, second.z, second.w);
    return result;
  }
  static __device__ __forceinline__ u32 key_offset(u32 p, u32 d) {
    return (p % 8 * 64 + p / 8 * 512) + (d % 8 / 2 * 16 + d % 16 / 8 * 8 + d % 2 * 4);
  }
  static __device__ __forceinline__ u32 value_offset(u32 p, u32 d) {
    return (p % 8 / 2 * 16 + p / 8 * 8 + p % 2 * 4) + (d % 8 * 64 + d % 16 / 8 * 512);
  }

  static __device__ __forceinline__ Element element(float value) { return value; }
  static __device__ __forceinline__ bool finite(Element value) { return isfinite(value); }
  static __device__ __forceinline__ void store_pair(u8* address, float a, float b) {
    *reinterpret_cast<float2*>(address) = make_float2(a, b);
  }

 private:
  static __device__ __forceinline__ void set(Fragment& fragment, int r, float a, float b) {
    split_pair<Bf16>(a, b, (&fragment.term[0].x)[r], (&fragment.term[1].x)[r]);
  }
};

#if AMK_KV_TYPE == 0
using Kv = HalfKv<Fp16>;
#elif AMK_KV_TYPE == 1
using Kv = HalfKv<Bf16>;
#else
using Kv = FloatKv;
#endif

constexpr int kHeadSteps = kHeadDimPadded / 16;  // fragments of K, and of V, in a block
static_assert(kKvBlockBytes == 2 * kHeadSteps * Kv::kFragmentBytes, "the schedule's K/V block is the kernel's");

}  // namespace amk
