// Matrix-vector product of one unit (16 rows) on tensor cores: one 16-byte shared load and one mma per 512 bytes.
//
// A unit may be multiplied in parts of K, each with the activation gathered for it: what was summed so far waits in an
// accumulator of the warp, so that a part needs only its own share of a long vector in shared memory, and can be
// multiplied while the rest of the vector is not there yet.
#pragma once

#include "compute_lane.cuh"

namespace amk {

using Sums = float[2][4];  // two accumulators: consecutive mma do not wait for each other

// A warp's weight tiles of a chunk of kCount k-steps.
template <int kCount>
struct Tiles {
  static constexpr int kMine = (kCount + kComputeWarps - 1) / kComputeWarps;
  uint4 a[kMine];

  static __device__ __forceinline__ bool has(const ComputeLane& lane, int i) {
    return kCount % kComputeWarps == 0 || i * kComputeWarps + lane.warp < kCount;
  }

  // From the slot at `next`, as soon as it is full.
  __device__ __forceinline__ void load(ComputeLane& lane, const RingCursor& next) {
    wait(lane, full_barrier(next.slot), next.parity);
    const uint4* tiles = reinterpret_cast<const uint4*>(ring_slot(next.slot)) + lane.warp * 32 + lane.thread;
#pragma unroll
    for (int i = 0; i < kMine; i++)
      if (has(lane, i)) a[i] = tiles[i * kComputeWarps * 32];
  }

  // Multiplies with x, and gives the slot back.
  __device__ __forceinline__ void multiply(ComputeLane& lane, const uint2* x, Sums& sums) const {
#pragma unroll
    for (int i = 0; i < kMine; i++) {
      if (!has(lane, i)) continue;
      const uint2 b = x[i * 8];
      Bf16::mma(sums[i & 1], a[i], b.x, b.y);
    }
    lane.release_ring_slot();
  }
};

// kRest: k-steps after the full chunks of kChunk.
template <int kChunk, int kRest>
struct Product {
  static constexpr int kPerChunk = (kChunk + kComputeWarps - 1) / kComputeWarps;  // k-steps of a warp

  // Adds the product of the next `full` chunks, one or more, and the rest in the ring with x. A chunk is loaded before
  // the one before it is multiplied, so that a warp's latencies overlap.
  static __device__ __forceinline__ void add(ComputeLane& lane, int full, Sums& sums) {
    const uint2* x = load_x(lane);
    RingCursor next = lane.next;
    Tiles<kChunk> current;
    current.load(lane, next);
#pragma unroll kProductUnroll
    for (int chunk = 1; chunk < full; chunk++) {
      Tiles<kChunk> following;
      next.advance();
      following.load(lane, next);
      current.multiply(lane, x, sums);
      current = following;
      x += kPerChunk * 8;
    }
    if constexpr (kRest == 0) {
      current.multiply(lane, x, sums);
    } else {
      Tiles<kRest> rest;
      next.advance();
      rest.load(lane, next);
      current.multiply(lane, x, sums);
      rest.multiply(lane, x + kPerChunk * 8, sums);
    }
  }
};

// Columns 0 (high half of x) and 1 (low half) are in the threads with thread % 4 == 0: rows thread / 4 and + 8.
__device__ __forceinline__ void hand_over(ComputeLane& lane, const Sums& sums) {
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

// An accumulator's words of this thread: both are only ever touched by it.
__device__ __forceinline__ float2* accumulator(const ComputeLane& lane, int index) {
  return reinterpret_cast<float2*>(shared + kAccumulatorsOffset) + (index * kComputeWarps + lane.warp) * 8 +
         (lane.thread >> 2);
}

__device__ __forceinline__ void resume(const ComputeLane& lane, int index, Sums& sums) {
  if (lane.thread & 3) return;
  const float2 parked = *accumulator(lane, index);
  sums[0][0] = parked.x;
  sums[0][2] = parked.y;
}

__device__ __forceinline__ void park(const ComputeLane& lane, int index, const Sums& sums) {
  if (lane.thread & 3) return;
  *accumulator(lane, index) = make_float2(
      (sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1]), (sums[0][2] + sums[0][3]) + (sums[1][2] + sums[1][3]));
}

// All products run the same code: whether a sum begins in an accumulator and where it goes are arguments.
template <int kChunk, int kRest>
struct Gemv {
  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task, int full, bool resumed, bool parked) {
    Sums sums = {};
    if (resumed) resume(lane, task.first.y, sums);
    Product<kChunk, kRest>::add(lane, full, sums);
    if (parked)
      park(lane, task.first.y, sums);
    else
      hand_over(lane, sums);
  }
};

}  // namespace amk
