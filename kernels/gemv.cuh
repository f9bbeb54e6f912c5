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

  __device__ __forceinline__ void multiply(const ComputeLane& lane, const uint2* x, Sums& sums) const {
#pragma unroll
    for (int i = 0; i < kMine; i++) {
      if (!has(lane, i)) continue;
      const uint2 b = x[i * 8];
      Bf16::mma(sums[i & 1], a[i], b.x, b.y);
    }
  }
};

// Chunks of kChunk k-steps, and one of kRest.
template <int kChunk, int kRest>
struct Product {
  static constexpr int kPerChunk = Tiles<kChunk>::kMine;  // k-steps of a warp

  // Adds the product of the next `full` chunks, one or more, and the rest in the ring with x. A chunk is loaded before
  // the one before it is multiplied, so that a warp's latencies overlap.
  static __device__ __forceinline__ void add(ComputeLane& lane, int full, const uint2* x, Sums& sums) {
    RingCursor next = lane.next;
    Tiles<kChunk> current;
    current.load(lane, next);
#pragma unroll kProductUnroll
    for (int chunk = 1; chunk < full; chunk++) {
      Tiles<kChunk> following;
      next.advance();
      following.load(lane, next);
      current.multiply(lane, x, sums);
      lane.release_ring_slot();
      current = following;
      x += kPerChunk * 8;
    }
    if constexpr (kRest == 0) {
      current.multiply(lane, x, sums);
      lane.release_ring_slot();
    } else {
      Tiles<kRest> rest;
      next.advance();
      rest.load(lane, next);
      current.multiply(lane, x, sums);
      lane.release_ring_slot();
      rest.multiply(lane, x + kPerChunk * 8, sums);
      lane.release_ring_slot();
    }
  }
};

// The leading chunks of a unit in registers, of a warp up to kLoadedTiles tiles of them; their slots are free again.
template <int kChunk, int kRest, int kFull>
struct Loaded {
  static constexpr int kPerChunk = Tiles<kChunk>::kMine;
  static constexpr int kOfRest = kRest ? Tiles<kRest ? kRest : 1>::kMine : 0;
  static constexpr bool kWhole = kFull * kPerChunk + kOfRest <= kLoadedTiles;
  static constexpr int kMost = kWhole ? kFull : kFull - 1;  // Product takes one or more of the others
  static constexpr int kChunks = kMost < kLoadedTiles / kPerChunk ? kMost : kLoadedTiles / kPerChunk;
  static constexpr int kTiles = kChunks * kPerChunk;  // of a warp, without those of the rest
  static constexpr bool kRestToo = kWhole && kRest > 0;

  Tiles<kChunk> chunks[kChunks ? kChunks : 1];
  Tiles<kRestToo ? kRest : 1> rest;

  __device__ __forceinline__ void load(ComputeLane& lane) {
#pragma unroll
    for (int i = 0; i < kChunks; i++) {
      chunks[i].load(lane, lane.next);
      lane.release_ring_slot();
    }
    if constexpr (kRestToo) {
      rest.load(lane, lane.next);
      lane.release_ring_slot();
    }
  }

  __device__ __forceinline__ void multiply(const ComputeLane& lane, const uint2* x, Sums& sums) const {
#pragma unroll
    for (int i = 0; i < kChunks; i++) chunks[i].multiply(lane, x + i * kPerChunk * 8, sums);
    if constexpr (kRestToo) rest.multiply(lane, x + kTiles * 8, sums);
  }
};

struct NoneLoaded {
  static constexpr bool kWhole = false;
  static constexpr int kChunks = 0, kTiles = 0;
  __device__ __forceinline__ void multiply(const ComputeLane&, const uint2*, Sums&) const {}
};

// Sums of columns 0 (high parts of x) and 1 (low parts), of rows thread / 4 in the first of an accumulator's halves and
// thread / 4 + 8 in the second.
__device__ __forceinline__ float first_rows(const Sums& sums) { return (sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1]); }
__device__ __forceinline__ float last_rows(const Sums& sums) { return (sums[0][2] + sums[0][3]) + (sums[1][2] + sums[1][3]); }

// The 16 sums of a unit, each in one thread, and where they are kept: row r at words[r * kStride], of a reduction slot or
// of an accumulator, whose words are only ever touched by the same thread.
template <int kRows>
struct UnitSums;

// Every fourth thread has two rows. All pairs of columns are alike.
template <>
struct UnitSums<16> {
  static __device__ __forceinline__ bool any(int thread) { return (thread & 3) == 0; }

  template <int kStride>
  static __device__ __forceinline__ void leave(int thread, float* words, const Sums& sums) {
    words[(thread >> 2) * kStride] = first_rows(sums);
    words[(8 + (thread >> 2)) * kStride] = last_rows(sums);
  }
  static __device__ __forceinline__ void resume(int thread, const float* words, Sums& sums) {
    sums[0][0] = words[thread >> 2];
    sums[0][2] = words[8 + (thread >> 2)];
  }
};

// A row's sum over the first half of K, in columns 0 and 1 of a tile's rows 0-7, and over the second, in columns 2 and 3 of
// its rows 8-15, are words 8 apart.
template <>
struct UnitSums<8> {
  static __device__ __forceinline__ bool any(int thread) { return (thread & 2) == 0; }
  static __device__ __forceinline__ int place(int thread) { return (thread & 1) * 8 + (thread >> 2); }

  template <int kStride>
  static __device__ __forceinline__ void leave(int thread, float* words, const Sums& sums) {
    words[place(thread) * kStride] = thread & 1 ? last_rows(sums) : first_rows(sums);
  }
  static __device__ __forceinline__ void resume(int thread, const float* words, Sums& sums) {
    (thread & 1 ? sums[0][2] : sums[0][0]) = words[place(thread)];
  }
};

template <typename Unit>
__device__ __forceinline__ void hand_over(ComputeLane& lane, const Sums& sums) {
  const float squares = warp_sum(lane.squares);  // while the last mma are on their way
  wait(lane, reduce_empty(lane.reduce.slot), lane.reduce.parity ^ 1);
  float* words = reinterpret_cast<float*>(shared + reduce_offset(lane.reduce.slot, lane.warp));
  if (Unit::any(lane.thread)) Unit::template leave<kReduceRow>(lane.thread, words, sums);
  if (lane.thread == 0) words[kSquaresRow * kReduceRow] = squares;
  arrive_at_barrier<kReduceBarrierThreads>(reduce_full(lane.reduce.slot));
  lane.reduce.advance();
}

__device__ __forceinline__ float* accumulator(const ComputeLane& lane, int index) {
  return reinterpret_cast<float*>(shared + kAccumulatorsOffset) + (index * kComputeWarps + lane.warp) * 16;
}

// `full` and `half`: see Product. `resumed`, `parked`: whether the sums begin with those of an accumulator, and whether they
// go there. Literals, where variants do not share code.
template <int kChunk, int kRest>
struct Gemv {
  static __device__ __forceinline__ void run(
      ComputeLane& lane, const Task& task, int full, int half, bool resumed, bool parked) {
    if (half)
      multiply<UnitSums<8>>(lane, task, full, half, resumed, parked, NoneLoaded{});
    else
      multiply<UnitSums<16>>(lane, task, full, half, resumed, parked, NoneLoaded{});
  }

  // The same of a unit of `kFull` chunks and the rest, of which `loaded` are in registers.
  template <int kFull>
  static __device__ __forceinline__ void run_loaded(
      ComputeLane& lane, const Task& task, int half, bool resumed, bool parked,
      const Loaded<kChunk, kRest, kFull>& loaded) {
    if (half)
      multiply<UnitSums<8>>(lane, task, kFull, half, resumed, parked, loaded);
    else
      multiply<UnitSums<16>>(lane, task, kFull, half, resumed, parked, loaded);
  }

 private:
  // `half`: a warp's k-steps in half of x, where units have 8 rows and so a tile's rows 8-15 meet the second half.
  template <typename Unit, typename LoadedT>
  static __device__ __forceinline__ void multiply(
      ComputeLane& lane, const Task& task, int full, int half, bool resumed, bool parked, const LoadedT& loaded) {
    Sums sums = {};
    if (resumed && Unit::any(lane.thread)) Unit::resume(lane.thread, accumulator(lane, task.first.y), sums);
    const uint2* x = load_x(lane) + (lane.thread & 8) * half;
    loaded.multiply(lane, x, sums);
    if constexpr (!LoadedT::kWhole)
      Product<kChunk, kRest>::add(lane, full - LoadedT::kChunks, x + LoadedT::kTiles * 8, sums);
    if (!parked)
      hand_over<Unit>(lane, sums);
    else if (Unit::any(lane.thread))
      Unit::template leave<1>(lane.thread, accumulator(lane, task.first.y), sums);
  }
};

}  // namespace amk
