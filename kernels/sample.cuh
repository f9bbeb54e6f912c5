// The end of a token: every SM makes the same greedy choice from the same packets, and so takes the same exit.
#pragma once

#include "compute_lane.cuh"
#include "epilogue.cuh"

namespace amk {

// Warp 0 polls for the SM; the choice reaches the other warps through two words that alternate from token to token.
struct Sample {
  static constexpr int kRounds = (kSms + 31) / 32;

  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task) {
    volatile int* choice = quit_flag() + 2 + 2 * (lane.step & 1);
    if (lane.warp == 0) {
      const int2 chosen = choose(lane, lane.params.packets + task.first.y, lane.tag(task.first.z));
      if (lane.thread == 0) {
        choice[0] = chosen.x;
        choice[1] = chosen.y;
      }
    }
    compute_barrier<kComputeThreads>();
    accept(lane, choice[0], choice[1]);
  }

 private:
  // (token, or -1 if a logit is not a number; whether the host asked to stop)
  static __device__ __forceinline__ int2 choose(const ComputeLane& lane, const u64* packets, u32 tag) {
    u64 values[kRounds], rows[kRounds];
    poll(lane, packets, tag, values, rows);
    float best = -infinity();
    int row = kNoRow;
    bool bad = false, cancel = false;
#pragma unroll
    for (int i = 0; i < kRounds; i++) {
      if (lane.thread + 32 * i >= kSms) continue;
      const int candidate = __float_as_int(value_of(rows[i]));
      bad |= candidate == -1;
      cancel |= candidate != -1 && (candidate & kCancelBit);
      take_better(value_of(values[i]), candidate & ~kCancelBit, best, row);
    }
    for (int distance = 16; distance; distance >>= 1)
      take_better(__shfl_xor_sync(~0u, best, distance), __shfl_xor_sync(~0u, row, distance), best, row);
    bad = __any_sync(~0u, bad) || row >= kVocab;
    return make_int2(bad ? -1 : row, __any_sync(~0u, cancel));
  }

  static __device__ __forceinline__ void poll(
      const ComputeLane& lane, const u64* packets, u32 tag, u64 (&values)[kRounds], u64 (&rows)[kRounds]) {
    const TraceWait traced(lane.trace);
    Spin spin;
    for (;;) {
      bool all = true;
#pragma unroll
      for (int i = 0; i < kRounds; i++) {
        if (lane.thread + 32 * i >= kSms) continue;
        load_packet_pair(packets + 2 * (lane.thread + 32 * i), values[i], rows[i]);
        all &= arrived(values[i], tag) & arrived(rows[i], tag);
      }
      if (all) return;
      spin.again(lane);
    }
  }

  static __device__ __forceinline__ void accept(ComputeLane& lane, int token, bool cancel) {
    const Params& params = lane.params;
    const int index = lane.step - (params.given_count - 1);  // of the generated tokens; negative within the prompt
    const bool speaker = blockIdx.x == 0 && threadIdx.x == 0;
    if (token < 0) {
      if (speaker) atomicOr_system(&params.report->status, kNotFinite);
      lane.stop = true;
      return;
    }
    lane.token = token;
    if (index < 0) return;
    bool ends = false;
    for (int i = 0; i < params.stop_count; i++) ends |= __ldg(params.stop_ids + i) == token;
    if (speaker) {
      *(volatile int*)(params.tokens + index) = token;
      if (ends || cancel) params.report->stopped = ends ? 1 : 2;
    }
    lane.stop = ends || cancel;
  }
};

}  // namespace amk
