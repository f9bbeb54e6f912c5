// A layer's result normed before it is added to the residual (Gemma 2, OLMo 2).
//
// The norm needs the whole vector, of which each warp gathers its slice: one pass gathers and sums the squares, the warps
// exchange their sums, a second pass adds and norms for what comes next. Between the passes each thread keeps what it
// gathered where it will put x: those words are its own, and the warp is done with the x before.
#pragma once

#include "activation.cuh"
#include "scratch.cuh"

namespace amk {

template <int kSteps, int kParts, int kStride>
struct AddPostNorm {
  static constexpr int kRounds = Slice<kSteps>::kRounds;

  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task) {
    const float scale = kResidualMultiplier * rsqrtf(block_sum(lane, gather(lane, task)) / kHidden + kNormEps);
    const float* post_norm = Norm<kSteps>::row(lane, task.first.w);
    const float* next_norm = Norm<kSteps>::row(lane, task.second().x);
    float sum = 0.f;
#pragma unroll 2
    for (int round = 0; round < kRounds; round++) {
      const float2 post = Norm<kSteps>::weight(lane, post_norm, round);
      const float2 arrived = kept(lane, round);
      float2 value = *residual(lane, round);
      value.x += arrived.x * scale * post.x;
      value.y += arrived.y * scale * post.y;
      *residual(lane, round) = value;
      Norm<kSteps>::store(lane, round, value, Norm<kSteps>::weight(lane, next_norm, round), sum);
    }
    Norm<kSteps>::finish(lane, sum);
  }

 private:
  // Gathers this thread's elements, keeps them, and returns the sum of their squares.
  static __device__ __forceinline__ float gather(ComputeLane& lane, const Task& task) {
    const u64* mine = my_packets<kSteps>(lane, task.first.y);
    const u32 tag = lane.tag(task.first.z);
    float sum = 0.f;
    for_batches<kRounds>([&](int first, auto count) {
      constexpr int kCount = decltype(count)::value;
      float2 values[kCount] = {};
#pragma unroll
      for (int part = 0; part < kParts; part++) {
        float arrivals[kCount][2];
        poll_batch(lane, PollPlace<kSteps>{mine + part * kStride, tag, first, kHidden}, arrivals);
#pragma unroll
        for (int i = 0; i < kCount; i++) {
          values[i].x += arrivals[i][0];
          values[i].y += arrivals[i][1];
        }
      }
#pragma unroll
      for (int i = 0; i < kCount; i++) {
        sum += values[i].x * values[i].x + values[i].y * values[i].y;
        keep(lane, first + i, values[i]);
      }
    });
    return sum;
  }

  // The sum over all compute threads, in warp order. The second barrier: the words are free for the next sum.
  static __device__ __forceinline__ float block_sum(ComputeLane& lane, float sum) {
    sum = warp_sum(sum);
    if (lane.thread == 0) partials()[lane.warp] = sum;
    compute_barrier<kComputeThreads>();
    float total = 0.f;
#pragma unroll
    for (int warp = 0; warp < kComputeWarps; warp++) total += partials()[warp];
    compute_barrier<kComputeThreads>();
    return total;
  }

  static __device__ __forceinline__ void keep(const ComputeLane& lane, int round, float2 value) {
    if (!Slice<kSteps>::in_slice(round, lane.thread)) return;
    u32* words = x_words<kSteps>(lane, round);
    words[0] = __float_as_uint(value.x);
    words[8] = __float_as_uint(value.y);
  }

  static __device__ __forceinline__ float2 kept(const ComputeLane& lane, int round) {
    if (!Slice<kSteps>::in_slice(round, lane.thread)) return make_float2(0.f, 0.f);
    const u32* words = x_words<kSteps>(lane, round);
    return make_float2(__uint_as_float(words[0]), __uint_as_float(words[8]));
  }
};

}  // namespace amk
