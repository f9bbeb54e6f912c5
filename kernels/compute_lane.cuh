// State of the compute lane and how its warps share K: k-step j belongs to warp j % warps, so that each warp gathers,
// converts and multiplies its own slice and no block-wide barrier is needed.
#pragma once

#include "handoff.cuh"
#include "ring.cuh"

namespace amk {

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

struct ComputeLane : LaneState {
  using AheadT = OpcodeAhead;
  int warp;
  RingCursor next;
  ReduceCursor reduce;
  float squares = 0.f;  // this thread's part of their sum, of the residual that was last normalised
  int token = 0;
  bool stop = false;

  __device__ explicit ComputeLane(const Params& p) : LaneState(p, kCompute), warp(threadIdx.x >> 5) {}

  __device__ __forceinline__ void forget_thread() { asm volatile("" : "+r"(thread), "+r"(warp));
    __builtin_assume(thread >= 0 && thread < 32 && warp >= 0 && warp < kComputeWarps); }

  // Index among the compute threads.
  __device__ __forceinline__ int index() const {
    const int index = warp * 32 + thread;
    __builtin_assume(index >= 0 && index < kComputeThreads);
    return index;
  }

  __device__ __forceinline__ void release_ring_slot() {
    __syncwarp();
    if (thread == 0) mbarrier_arrive(empty_barrier(next.slot));
    next.advance();
  }
};

// Calls body(i) for this thread's of items 0 .. kCount - 1, shared out over the compute threads.
template <u32 kCount, typename Body>
__device__ __forceinline__ void for_mine(const ComputeLane& lane, Body&& body) {
  if constexpr (kCount <= kComputeThreads) {
    if (const u32 i = lane.index(); i < kCount) body(i);
  } else {
#pragma unroll 1
    for (u32 i = lane.index(); i < kCount; i += kComputeThreads) body(i);
  }
}

// A warp's slice of a vector of kSteps k-steps, in rounds of 4 k-steps: 8 threads x 2 neighbouring elements each.
template <int kSteps>
struct Slice {
  static constexpr int kPerWarp = (kSteps + kComputeWarps - 1) / kComputeWarps;
  static constexpr int kRounds = (kPerWarp + 3) / 4;
  static constexpr u32 kStride = 4 * kComputeWarps * 16;  // elements from one round to the next

  // k-step of the warp, and first element of the vector, that a thread handles in a round.
  static __device__ __forceinline__ int local_step(int round, int thread) { return round * 4 + (thread >> 3); }
  static __device__ __forceinline__ u32 element(const ComputeLane& lane, int round) {
    return ((lane.thread >> 3) * kComputeWarps + lane.warp) * 16 + (lane.thread & 7) * 2 + round * kStride;
  }

  // Whether a thread has a k-step in a round: all do but in the last, of a slice that does not fill it.
  static __device__ __forceinline__ bool in_slice(int round, int thread) {
    return (round + 1) * 4 <= kPerWarp || local_step(round, thread) < kPerWarp;
  }
  // Whether it has elements of a vector of this length there. Known to the compiler where all rounds are full.
  static __device__ __forceinline__ bool valid(const ComputeLane& lane, int round, int length) {
    if (in_slice(round, lane.thread) && (round + 1) * kStride <= length) return true;
    return in_slice(round, lane.thread) && element(lane, round) < length;
  }
};

// The activation buffer holds x as B fragments of mma.m16n8k16: per k-step 4 x {k, k+8} pairs of high halves, then of
// low halves. In the mma the 8 columns alternate high and low, so the sum of columns 0 and 1 is the product with x.
// A warp's region is the same for every vector length: warps drift apart, and one that is a vector ahead must not write
// where another still multiplies.
constexpr int kActivationSteps = kActivationKsteps / kComputeWarps;
__device__ __forceinline__ u32* activation_words() { return reinterpret_cast<u32*>(shared + kActivationOffset); }

// Where a thread's two elements of a round are: the high halves in the first word, the low halves in the ninth.
template <int kSteps>
__device__ __forceinline__ u32* x_words(const ComputeLane& lane, int round) {
  const int step = Slice<kSteps>::local_step(round, lane.thread), pair = lane.thread & 7;
  static_assert(Slice<kSteps>::kPerWarp <= kActivationSteps, "the activation buffer holds the vector");
  return activation_words() + (lane.warp * kActivationSteps + step) * 16 + (pair & 3) * 2 + (pair >> 2);
}

template <int kSteps>
__device__ __forceinline__ void store_x(const ComputeLane& lane, int round, float a, float b) {
  if (!Slice<kSteps>::in_slice(round, lane.thread)) return;
  u32* words = x_words<kSteps>(lane, round);
  u32 high, low;
  split_pair<Bf16>(a, b, high, low);
  words[0] = high;
  words[8] = low;
}

__device__ __forceinline__ const uint2* load_x(const ComputeLane& lane) {
  const uint2* pairs = reinterpret_cast<const uint2*>(activation_words());
  return pairs + lane.warp * kActivationSteps * 8 + (lane.thread & 7);
}

// Every SM keeps the whole residual in fp32; each thread reads and writes only its own elements.
__device__ __forceinline__ float2* residual(const ComputeLane& lane, int round) {
  return reinterpret_cast<float2*>(shared + kResidualOffset) + round * kComputeThreads + lane.index();
}

__device__ __forceinline__ float warp_sum(float value) {
  for (int distance = 16; distance; distance >>= 1) value += __shfl_xor_sync(~0u, value, distance);
  return value;
}

}  // namespace amk
