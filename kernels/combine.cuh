// Merges the attention splits of one query head (where there are several) and publishes its output.
#pragma once

#include "attend.cuh"

namespace amk {

struct Combine {
  static constexpr int kDims = (kHeadDim + 31) / 32;  // of a thread: dim thread + 32 i

  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task) {
    const int pos = lane.pos(), rows = split_rows(pos);
    if (rows >= pos) return;  // one split: see Split
    const u32 tag = lane.tag(task.first.w);
    float output[kDims] = {}, top = -infinity(), sum = 0.f;
#pragma unroll 1
    for (int split = lane.warp; split * rows < pos; split += kComputeWarps)
      merge(lane, task.first.y + split * kHeads * kPartialWords, tag, output, top, sum);
    float* row = Left::output(lane.warp, 0);
#pragma unroll
    for (int i = 0; i < kDims; i++)
      if (lane.thread + 32 * i < kHeadDim) row[lane.thread + 32 * i] = output[i];
    if (lane.thread == 0) {
      Left::tops(0)[lane.warp] = top;
      Left::sums(0)[lane.warp] = sum;
    }
    compute_barrier<kComputeThreads>();
    publish(lane, task.first.z, tag);
    compute_barrier<kComputeThreads>();
  }

 private:
  using Left = Partials<kComputeWarps, 1>;

  static __device__ __forceinline__ void merge(
      ComputeLane& lane, u32 source, u32 tag, float (&output)[kDims], float& top, float& sum) {
    const u64* mine = lane.params.packets + (source + lane.thread);
    const u64* last = lane.params.packets + (source + kHeadDim);
    u64 part[kDims], tops, sums;
    const TraceWait traced(lane.trace);
    Spin spin;
    for (;;) {
      bool all = true;
#pragma unroll
      for (int i = 0; i < kDims; i++) {
        part[i] = static_cast<u64>(tag) << 32;
        if (lane.thread + 32 * i < kHeadDim) part[i] = load_packet(mine + 32 * i);
        all &= arrived(part[i], tag);
      }
      load_packet_pair(last, tops, sums);
      if (all & arrived(tops, tag) & arrived(sums, tag)) break;
      spin.again(lane);
    }
    const float top_now = fmaxf(top, value_of(tops));
    const float old = exp2_fast(top - top_now), fresh = exp2_fast(value_of(tops) - top_now);
    top = top_now;
    sum = sum * old + value_of(sums) * fresh;
#pragma unroll
    for (int i = 0; i < kDims; i++) output[i] = output[i] * old + value_of(part[i]) * fresh;
  }

  static __device__ __forceinline__ void publish(ComputeLane& lane, u32 target, u32 tag) {
    for_mine<kHeadDim>(lane, [&](u32 dim) {
      const Merged<1> m(Left{}, 0, dim, -infinity());
      publish_packet(lane.params.packets + (target + dim), __fdividef(m.output[0], m.sum), tag);
    });
  }
};

}  // namespace amk
