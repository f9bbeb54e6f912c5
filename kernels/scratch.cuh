// The scratch region of shared memory that the attention tasks use: Q fragments, the new row, partial results.
#pragma once

#include "compute_lane.cuh"
#include "kv_types.cuh"

namespace amk {

constexpr int kNewRowOffset = kHeadSteps * 512;                  // after the Q fragments: k, then v, fp32
constexpr int kPartialOffset = kNewRowOffset + 8 * kHeadDimPadded;  // per warp and query: output, maximum, sum
constexpr int kPartialWords = kHeadDim + 2;
constexpr float kLowest = -3e38f;  // below every score, and finite

__device__ __forceinline__ float* new_row() { return reinterpret_cast<float*>(shared + kScratchOffset + kNewRowOffset); }
__device__ __forceinline__ float* partials() { return reinterpret_cast<float*>(shared + kScratchOffset + kPartialOffset); }
__device__ __forceinline__ float* partial_row(int warp, int query, int queries) {
  return partials() + (warp * queries + query) * kPartialWords;
}

// The partial results of the first `rows` warps for one query and dim, merged in order. `top` is at least `least`.
struct Merged {
  float output = 0.f, sum = 0.f, top;

  template <int kMost>
  static __device__ __forceinline__ Merged of(Constant<kMost>, int rows, int query, int queries, int dim, float least) {
    Merged m;
    m.top = least;
#pragma unroll
    for (int warp = 0; warp < kMost; warp++)
      if (warp < rows) m.top = fmaxf(m.top, partial_row(warp, query, queries)[kHeadDim]);
#pragma unroll
    for (int warp = 0; warp < kMost; warp++) {
      if (warp >= rows) continue;
      const float* row = partial_row(warp, query, queries);
      const float factor = exp2_fast(row[kHeadDim] - m.top);
      m.output += factor * row[dim];
      m.sum += factor * row[kHeadDim + 1];
    }
    return m;
  }
};

}  // namespace amk
