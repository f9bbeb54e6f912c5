// K/V element types: how a fragment of 16 positions x 16 dims is laid out, loaded and multiplied.
//
// K block as B operand of Q K^T (k = dims, n = positions), V block as B operand of P V (k = positions, n = dims), both
// lane-major in fragment order, so that a thread's fragment for two n-blocks of 8 is one (fp32: two) 16-byte loads.
#pragma once

#include "splits.cuh"

namespace amk {

// Register and half of element (position p, dim d) in its fragment, and the thread that holds it.
__device__ __forceinline__ int key_word(int p, int d) { return ((p & 7) * 4 + (d & 7) / 2) * 4 + (p / 8) * 2 + (d % 16) / 8; }
__device__ __forceinline__ int value_word(int p, int d) { return ((d & 7) * 4 + (p & 7) / 2) * 4 + ((d % 16) / 8) * 2 + p / 8; }

// Two halves of 16 bits: T is Fp16 or Bf16.
template <typename T>
struct HalfKv {
  using Mma = T;
  static constexpr int kTerms = 1;
  static constexpr int kFragmentBytes = 512;
  struct Fragment {
    uint4 term[kTerms];
  };
  static __device__ __forceinline__ Fragment load(const u8* fragment, int thread) {
    return {{reinterpret_cast<const uint4*>(fragment)[thread]}};
  }
  static __device__ __forceinline__ void store(u8* fragment, int word, int half, float value) {
    reinterpret_cast<unsigned short*>(fragment)[word * 2 + half] = static_cast<unsigned short>(T::pack(value, 0.f));
  }
  // What is stored, widened: later tokens see the rounded row, so this one does too.
  static __device__ __forceinline__ float round(float value) { return T::low(T::pack(value, 0.f)); }
  // Registers of a fragment with `a`, `b` as the pair at register r of this thread.
  static __device__ __forceinline__ void set(Fragment& fragment, int r, float a, float b) {
    (&fragment.term[0].x)[r] = T::pack(a, b);
  }
};

// fp32 rows are kept exactly and enter the tensor cores as bf16 high and low parts, like every other activation.
struct FloatKv {
  using Mma = Bf16;
  static constexpr int kTerms = 2;
  static constexpr int kFragmentBytes = 1024;
  struct Fragment {
    uint4 term[kTerms];
  };
  static __device__ __forceinline__ Fragment load(const u8* fragment, int thread) {
    const float4 first = reinterpret_cast<const float4*>(fragment)[thread];
    const float4 second = reinterpret_cast<const float4*>(fragment + 512)[thread];
    Fragment result;
    set(result, 0, first.x, first.y);
    set(result, 1, first.z, first.w);
    set(result, 2, second.x, second.y);
    set(result, 3, second.z, second.w);
    return result;
  }
  static __device__ __forceinline__ void store(u8* fragment, int word, int half, float value) {
    const int thread = word / 4, index = (word % 4) * 2 + half;
    reinterpret_cast<float*>(fragment + (index / 4) * 512)[thread * 4 + index % 4] = value;
  }
  static __device__ __forceinline__ float round(float value) { return value; }
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
