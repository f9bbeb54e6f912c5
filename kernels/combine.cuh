// Merges the attention splits of one query head (where there are several) and publishes its output.
#pragma once

#include "attend.cuh"

namespace amk {

// Warps take splits in turn. A warp polls its own together, as many as registers allow: one L2 round trip for them all.
struct Combine {
  static constexpr int kPairs = (kHeadDim + 63) / 64;  // of neighbouring dims, of a thread: from dim thread * 2 + 64 i on
  static constexpr int kMine = (kMaxSplits + kComputeWarps - 1) / kComputeWarps;
  static constexpr int kMost = kPairs == 1 ? 8 : 4;
  static constexpr int kTogether = kMine < kMost ? kMine : kMost;

  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task) {
    const int pos = lane.pos(), rows = split_rows(pos);
    if (rows >= pos) return;  // one split: see Split
    const u32 tag = lane.tag(task.first.w);
    float2 output[kPairs] = {};
    float top = kLowest, sum = 0.f;  // finite: what is relative to it has no NaN
    int split = lane.warp;
    do {
      Parts parts;
      parts.poll(lane, task.first.y, split, rows, tag);
      parts.merge(output, top, sum);
      split += kTogether * kComputeWarps;
    } while (kTogether < kMine && split * rows < pos);
    float2* row = reinterpret_cast<float2*>(Left::output(lane.warp, 0)) + lane.thread;
#pragma unroll
    for (int i = 0; i < kPairs; i++)
      if (in_head(lane.thread, i)) row[32 * i] = output[i];
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
  static_assert(kHeadDim % 2 == 0, "dims are taken in pairs");

  static __device__ __forceinline__ bool in_head(int thread, int i) { return (thread + 32 * i) * 2 < kHeadDim; }

  // This thread's packets of the partial results of kTogether splits.
  struct Parts {
    u64 outputs[kTogether][kPairs][2], tops[kTogether], sums[kTogether];

    // Of splits first, first + kComputeWarps, ..; where there is no such split, of no weight.
    __device__ __forceinline__ void poll(const ComputeLane& lane, u32 source, int first, int rows, u32 tag) {
      const TraceWait traced(lane.trace);
#pragma unroll
      for (int n = 0; n < kTogether; n++) {
        sums[n] = static_cast<u64>(tag) << 32;
        tops[n] = sums[n] | __float_as_uint(-infinity());
#pragma unroll
        for (int i = 0; i < kPairs; i++) outputs[n][i][0] = outputs[n][i][1] = sums[n];
      }
      const u64* packets = lane.params.packets + (source + first * kHeads * kPartialWords);
      Spin spin;
      for (;;) {
        bool all = true;
#pragma unroll
        for (int n = 0; n < kTogether; n++)
          if ((first + n * kComputeWarps) * rows < lane.pos())
            load(packets + n * kComputeWarps * kHeads * kPartialWords, lane.thread, n);
#pragma unroll
        for (int n = 0; n < kTogether; n++) {
          all &= arrived(tops[n], tag) & arrived(sums[n], tag);
#pragma unroll
          for (int i = 0; i < kPairs; i++) all &= arrived(outputs[n][i][0], tag) & arrived(outputs[n][i][1], tag);
        }
        if (all) return;
        spin.again(lane);
      }
    }

    // Adds them to what was merged before, if there can be anything.
    __device__ __forceinline__ void merge(float2 (&output)[kPairs], float& top, float& sum) const {
      const float before = top;
#pragma unroll
      for (int n = 0; n < kTogether; n++) top = fmaxf(top, value_of(tops[n]));
      if (kTogether < kMine) {
        const float old = exp2_fast(before - top);
        sum *= old;
#pragma unroll
        for (int i = 0; i < kPairs; i++) output[i] = make_float2(output[i].x * old, output[i].y * old);
      }
#pragma unroll
      for (int n = 0; n < kTogether; n++) {
        const float fresh = exp2_fast(value_of(tops[n]) - top);
        sum += value_of(sums[n]) * fresh;
#pragma unroll
        for (int i = 0; i < kPairs; i++) {
          output[i].x += value_of(outputs[n][i][0]) * fresh;
          output[i].y += value_of(outputs[n][i][1]) * fresh;
        }
      }
    }

   private:
    __device__ __forceinline__ void load(const u64* packets, int thread, int n) {
#pragma unroll
      for (int i = 0; i < kPairs; i++)
        if (in_head(thread, i)) load_packet_pair(packets + (thread + 32 * i) * 2, outputs[n][i][0], outputs[n][i][1]);
      load_packet_pair(packets + kHeadDim, tops[n], sums[n]);
    }
  };

  static __device__ __forceinline__ void publish(ComputeLane& lane, u32 target, u32 tag) {
    for_mine<kHeadDim>(lane, [&](u32 dim) {
      const Merged<1> m(Left{}, 0, dim, -infinity());
      publish_packet(lane.params.packets + (target + dim), __fdividef(m.output[0], m.sum), tag);
    });
  }
};

}  // namespace amk
