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

}  // namespace amk
