// The scratch region of shared memory that the attention tasks use: Q fragments, the new row, partial results.
#pragma once

#include "compute_lane.cuh"
#include "kv_types.cuh"

namespace amk {

constexpr int kNewRowOffset = kHeadSteps * 512;  // after the Q fragments: k, then v, fp32; a copy per share of the dims
constexpr int kPartialOffset = kNewRowOffset + kValueShares * 8 * kHeadDimPadded;  // per warp and query: output, maximum, sum
constexpr int kPartialWords = kHeadDim + 2;
constexpr float kLowest = -3e38f;  // below every score, and finite

// All warps arrive when their part of Q is there; in the lane state.
__device__ __forceinline__ u32 queries_barrier() { return shared_address(shared) + kBarriersOffset + 16 * kRingStages + 8; }

__device__ __forceinline__ float* new_row(int copy) {
  return reinterpret_cast<float*>(shared + kScratchOffset + kNewRowOffset) + copy * 2 * kHeadDimPadded;
}
__device__ __forceinline__ float* partials() { return reinterpret_cast<float*>(shared + kScratchOffset + kPartialOffset); }
__device__ __forceinline__ float* partial_row(int warp, int query, int queries) {
  return partials() + (warp * queries + query) * kPartialWords;
}

}  // namespace amk
