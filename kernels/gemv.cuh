// Matrix-vector product of one unit (16 or 8 rows) on tensor cores: one 16-byte shared load and one mma per 512 bytes.
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
  // `half`: a warp's k-steps in half of x, where units have 8 rows and so a tile's rows 8-15 meet the second half.
  static __device__ __forceinline__ void add(ComputeLane& lane, int full, int half, Sums& sums) {
    const uint2* x = load_x(lane) + (lane.thread & 8) * half;
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

// Where this thread's sum belongs in 16 words: those with thread % 4 == 0 hold columns 0 (high parts of x) and 1 (low
// parts), of which rows 0-7 are taken, those with 1 columns 2 and 3 and rows 8-15. The columns of units of 16 rows are all
// alike; of 8, the first two are of the first half of x and the next two of the second.
__device__ __forceinline__ bool has_sum(const ComputeLane& lane) { return !(lane.thread & 2); }
__device__ __forceinline__ int sum_word(const ComputeLane& lane) { return (lane.thread & 1) * 8 + (lane.thread >> 2); }
__device__ __forceinline__ float sum_of(const ComputeLane& lane, const Sums& sums) {
  return lane.thread & 1 ? (sums[0][2] + sums[0][3]) + (sums[1][2] + sums[1][3])
                         : (sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1]);
}

__device__ __forceinline__ void hand_over(ComputeLane& lane, const Sums& sums) {
  wait(lane, reduce_empty(lane.reduce.slot), lane.reduce.parity ^ 1);
  float* words = reduce_slot(lane.reduce.slot) + lane.warp * kReduceWords;
  if (has_sum(lane)) words[sum_word(lane)] = sum_of(lane, sums);
  if (lane.thread == 0) words[kSumOfSquares] = lane.sum_of_squares;
  __syncwarp();
  if (lane.thread == 0) mbarrier_arrive(reduce_full(lane.reduce.slot));
  lane.reduce.advance();
}

// An accumulator's word of this thread: only ever touched by it.
__device__ __forceinline__ float* accumulator(const ComputeLane& lane, int index) {
  return reinterpret_cast<float*>(shared + kAccumulatorsOffset) + (index * kComputeWarps + lane.warp) * 16 +
         sum_word(lane);
}

// As one of this thread's four: sums are taken of all.
__device__ __forceinline__ void resume(const ComputeLane& lane, int index, Sums& sums) {
  if (!has_sum(lane)) return;
  const float parked = *accumulator(lane, index);
  if (lane.thread & 1)
    sums[0][2] = parked;
  else
    sums[0][0] = parked;
}

__device__ __forceinline__ void park(const ComputeLane& lane, int index, const Sums& sums) {
  if (has_sum(lane)) *accumulator(lane, index) = sum_of(lane, sums);
}

// All products run the same code: whether a sum begins in an accumulator and where it goes are arguments.
template <int kChunk, int kRest>
struct Gemv {
  static __device__ __forceinline__ void run(
      ComputeLane& lane, const Task& task, int full, int half, bool resumed, bool parked) {
    Sums sums = {};
    if (resumed) resume(lane, task.first.y, sums);
    Product<kChunk, kRest>::add(lane, full, half, sums);
    if (parked)
      park(lane, task.first.y, sums);
    else
      hand_over(lane, sums);
  }
};

}  // namespace amk
