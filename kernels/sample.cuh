// The end of a token: every SM makes the same greedy choice from the same packets, and so takes the same exit.
#pragma once

#include "compute_lane.cuh"
#include "epilogue.cuh"

namespace amk {

// Every thread polls the candidates of its SMs; each warp's best goes through shared memory, in words that alternate from
// token to token. Small code: it runs once per token, and so out of a cold instruction cache.
struct Sample {
  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task) {
    const int stop = stop_id(lane, lane.thread);  // asked for before the wait: it comes from far away
    volatile u64* bests = candidates() + (lane.step & 1) * (kComputeWarps + 1);
    const u64 mine = warp_max(poll(lane, lane.params.packets + task.first.y, lane.tag(task.first.z), bests));
    if (lane.thread == 0) bests[lane.warp] = mine;
    compute_barrier<kComputeThreads>();
    const u64 best = warp_max(lane.thread < kComputeWarps ? bests[lane.thread] : 0);
    const int row = row_of(best);
    accept(lane, best == kNotANumber || row >= kVocab ? -1 : row, bests[kComputeWarps] != 0, stop);
  }

 private:
  static constexpr u64 kNotANumber = ~0ull;

  static __device__ __forceinline__ volatile u64* candidates() {
    return reinterpret_cast<volatile u64*>(shared + kBarriersOffset + 16 * kRingStages + 64);
  }

  // The best candidate of this thread's SMs. SM 0's says whether the host asked to stop.
  static __device__ __forceinline__ u64 poll(const ComputeLane& lane, const u64* packets, u32 tag, volatile u64* bests) {
    const TraceWait traced(lane.trace);
    u64 best = 0;
#pragma unroll 1
    for (int sm = lane.index(); sm < kSms; sm += kComputeThreads) {
      u64 value, candidate;
      Spin spin;
      for (;;) {
        load_packet_pair(packets + 2 * sm, value, candidate);
        if (arrived(value, tag) & arrived(candidate, tag)) break;
        spin.again(lane);
      }
      const int row = __float_as_int(value_of(candidate));
      if (sm == 0) bests[kComputeWarps] = row != -1 && (row & kCancelBit);
      best = max(best, row == -1 ? kNotANumber : rank(value_of(value), row & ~kCancelBit));
    }
    return best;
  }

  // The stop token of this number, or -1.
  static __device__ __forceinline__ int stop_id(const ComputeLane& lane, int number) {
    return number < lane.params.stop_count ? __ldg(lane.params.stop_ids + number) : -1;
  }

  // `stop`: this thread's of the first 32 stop tokens.
  static __device__ __forceinline__ bool is_stop(const ComputeLane& lane, int token, int stop) {
#pragma unroll 1
    for (int i = 32; i < lane.params.stop_count; i += 32)
      if (const int other = stop_id(lane, i + lane.thread); other == token) stop = other;
    return __any_sync(~0u, stop == token);
  }

  static __device__ __forceinline__ void accept(ComputeLane& lane, int token, bool cancel, int stop) {
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
    const bool ends = is_stop(lane, token, stop);
    if (speaker) {
      *(volatile int*)(params.tokens + index) = token;
      if (ends || cancel) params.report->stopped = ends ? 1 : 2;
    }
    lane.stop = ends || cancel;
  }
};

}  // namespace amk
