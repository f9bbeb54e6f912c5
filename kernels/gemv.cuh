// Matrix-vector product of one unit (16 rows) on tensor cores: one 16-byte shared load and one mma per 512 bytes.
#pragma once

#include "compute_lane.cuh"

namespace amk {

template <int kSteps, int kChunk>
struct Gemv {
  static constexpr int kPerChunk = (kChunk + kComputeWarps - 1) / kComputeWarps;  // k-steps of a warp
  static_assert(kSteps <= kChunk || kChunk % kComputeWarps == 0, "chunks must not shift k-steps between warps");

  static __device__ __forceinline__ void run(ComputeLane& lane, const Task&) {
    float sums[2][4] = {};  // two accumulators: consecutive mma do not wait for each other
    const uint2* x = load_x(lane);
#pragma unroll 1
    for (int first = 0; first < kSteps; first += kChunk, x += kPerChunk * 8) {
      if (kSteps % kChunk == 0 || first + kChunk <= kSteps)
        multiply<kChunk>(lane, x, sums);
      else
        multiply<kSteps % kChunk ? kSteps % kChunk : kChunk>(lane, x, sums);
    }
    hand_over(lane, sums);
  }

 private:
  template <int kCount>
  static __device__ __forceinline__ void multiply(ComputeLane& lane, const uint2* x, float (&sums)[2][4]) {
    constexpr int kMine = (kCount + kComputeWarps - 1) / kComputeWarps;
    uint2 b[kMine];
#pragma unroll
    for (int i = 0; i < kMine; i++)
      if (has<kCount>(lane, i)) b[i] = x[i * 8];
    wait(lane, full_barrier(lane.next.slot), lane.next.parity);
    const uint4* tiles = reinterpret_cast<const uint4*>(ring_slot(lane.next.slot)) + lane.warp * 32 + lane.thread;
    uint4 a[kMine];
#pragma unroll
    for (int i = 0; i < kMine; i++)
      if (has<kCount>(lane, i)) a[i] = tiles[i * kComputeWarps * 32];
#pragma unroll
    for (int i = 0; i < kMine; i++)
      if (has<kCount>(lane, i)) Bf16::mma(sums[i & 1], a[i], b[i].x, b[i].y);
    lane.release_ring_slot();
  }

  template <int kCount>
  static __device__ __forceinline__ bool has(const ComputeLane& lane, int i) {
    return kCount % kComputeWarps == 0 || i * kComputeWarps + lane.warp < kCount;
  }

  // Columns 0 (high half of x) and 1 (low half) are in the threads with thread % 4 == 0: rows thread / 4 and + 8.
  static __device__ __forceinline__ void hand_over(ComputeLane& lane, const float (&sums)[2][4]) {
    wait(lane, reduce_empty(lane.reduce.slot), lane.reduce.parity ^ 1);
    float* words = reduce_slot(lane.reduce.slot) + lane.warp * kReduceWords;
    if ((lane.thread & 3) == 0) {
      words[lane.thread >> 2] = (sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1]);
      words[8 + (lane.thread >> 2)] = (sums[0][2] + sums[0][3]) + (sums[1][2] + sums[1][3]);
    }
    if (lane.thread == 0) words[kSumOfSquares] = lane.sum_of_squares;
    __syncwarp();
    if (lane.thread == 0) mbarrier_arrive(reduce_full(lane.reduce.slot));
    lane.reduce.advance();
  }
};

}  // namespace amk
