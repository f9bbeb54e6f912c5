// The scratch region of shared memory that the attention tasks use: Q fragments, the new row, partial results.
#pragma once

#include "compute_lane.cuh"
#include "kv_types.cuh"

namespace amk {

// The new row is kept as position 0 of a K/V block: what the cache will hold, and where it is attended as cached blocks
// are. Threads that hold other positions, which are masked, read the fragments of those of position 0, so that of each
// fragment only 64 bytes of K are needed, of threads 0-3, and 128 bytes of V, of every fourth thread.
constexpr int kNewRowOffset = kHeadSteps * 512;  // after the Q fragments
constexpr int kNewRowBytes = kHeadSteps * Kv::kFragmentBytes;
constexpr int kNewValueOffset = 64;  // V in the new row's fragments
constexpr int kNewValueStride = 16;  // from one dim of 8 to the next

__device__ __forceinline__ u8* new_row() { return shared + kScratchOffset + kNewRowOffset; }
// Where a dim of it is in the scratch region. Kv has the dims of a value's fragment 64 bytes apart.
__device__ __forceinline__ u32 new_key(u32 dim) {
  return kNewRowOffset + dim / 16 * Kv::kFragmentBytes + Kv::key_offset(0, dim);
}
__device__ __forceinline__ u32 new_value(u32 dim) {
  return kNewRowOffset + kNewValueOffset + dim / 16 * Kv::kFragmentBytes + Kv::value_offset(0, dim) -
         dim % 8 * (64 - kNewValueStride);
}

constexpr int kPartialOffset = kNewRowOffset + kNewRowBytes;
constexpr int kPartialWords = kHeadDim + 2;  // of a published partial result: output, maximum, sum
constexpr float kLowest = -3e38f;  // below every score, and finite

__device__ __forceinline__ float* partials() { return reinterpret_cast<float*>(shared + kScratchOffset + kPartialOffset); }

// Partial results of kRows groups of warps for kQueries queries: every one leaves its own, of no positions if it had
// none (maximum -infinity), so that a merge needs no conditions.
template <int kRows, int kQueries>
struct Partials {
  static constexpr int kStride = (kRows + 3) / 4 * 4;
  static constexpr int kOutputStride = (kHeadDim + 23) / 32 * 32 + 8;  // 4 queries' C fragments lie in different banks

  // Of all rows, side by side.
  static __device__ __forceinline__ float* tops(int query) { return partials() + query * 2 * kStride; }
  static __device__ __forceinline__ float* sums(int query) { return tops(query) + kStride; }
  static __device__ __forceinline__ float* output(int row, int query) {
    return partials() + kQueries * 2 * kStride + (row * kQueries + query) * kOutputStride;
  }
};

// Of values kFirst .. kEnd - 1: a tree, for its shorter chain.
template <int kFirst, int kEnd, int kCount>
__device__ __forceinline__ float largest(const float (&values)[kCount]) {
  constexpr int kMiddle = (kFirst + kEnd) / 2;
  if constexpr (kEnd - kFirst == 1)
    return values[kFirst];
  else
    return fmaxf(largest<kFirst, kMiddle>(values), largest<kMiddle, kEnd>(values));
}

// The partial results for one query and kDims neighbouring dims, merged in order. `top` is at least `least`.
template <int kDims>
struct Merged {
  float output[kDims] = {}, sum = 0.f, top;

  template <int kRows, int kQueries>
  __device__ __forceinline__ Merged(Partials<kRows, kQueries> all, int query, int dim, float least) {
    float tops[kRows], sums[kRows];
    load_row(all.tops(query), tops);
    load_row(all.sums(query), sums);
    top = largest<0, kRows>(tops);
    if (least > -infinity()) top = fmaxf(top, least);  // no instruction where it is a literal
    const float* outputs = all.output(0, query) + dim;
#pragma unroll
    for (int row = 0; row < kRows; row++) {
      const float factor = exp2_fast(tops[row] - top);
#pragma unroll
      for (int i = 0; i < kDims; i++) output[i] += factor * outputs[row * kQueries * all.kOutputStride + i];
      sum += factor * sums[row];
    }
  }
};

}  // namespace amk
