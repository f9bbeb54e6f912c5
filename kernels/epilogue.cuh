// The epilogue lane: sums the warps' partial sums in a fixed order and publishes, so that compute never waits for it.
#pragma once

#include "embedding.cuh"
#include "handoff.cuh"
#include "ring.cuh"

namespace amk {

constexpr int kCancelBit = 1 << 30;  // in SM 0's candidate row: the host asked to stop
constexpr int kNoRow = kCancelBit - 1;

// In order.
template <int kCount>
__device__ __forceinline__ float row_sum(const float (&words)[kCount]) {
  float sum = words[0];
#pragma unroll
  for (int i = 1; i < kCount; i++) sum += words[i];
  return sum;
}

// What is on the chain, between the arrival of a unit's partial sums and the store of its packets, is short: addresses
// are made before the wait.
struct EpilogueLane : LaneState {
  using AheadT = RecordAhead;
  ReduceCursor next;
  float best = -infinity();
  int best_row = kNoRow;
  bool not_finite = false;
  int control = 0;  // SM 0: the host's stop request, read at the start of the token

  __device__ explicit EpilogueLane(const Params& p) : LaneState(p, kEpilogue) {}

  __device__ __forceinline__ void read_control() {
    if (blockIdx.x == 0 && thread == 0) control = *params.control;
  }

  // The next unit's sum of row thread % 16, or of thread % 8 where both halves of K have one (`halves`), times the norm
  // scale if `scaled`. False: the launch has ended.
  __device__ __forceinline__ bool take(float& value, bool scaled, bool halves = false) {
    u32 squares = kReduceOffset + next.slot * kReduceSlotBytes + kSquaresRow * kReduceRow * 4;
    u32 mine = squares + ((thread & 15) - kSquaresRow) * kReduceRow * 4 + (thread >> 4) * kHalfWords * 4;
    const u32 empty = reduce_empty(next.slot);
    asm volatile("" : "+r"(squares), "+r"(mine));
    const bool going = wait_full();  // looked at when the sums are there: they are loaded meanwhile
    float words[kHalfWarps], first[kHalfWarps], second[kHalfWarps];
    load_row(reinterpret_cast<const float*>(shared + mine), words);
    if (scaled) {
      load_row(reinterpret_cast<const float*>(shared + squares), first);
      load_row(reinterpret_cast<const float*>(shared + squares) + kHalfWords, second);
    }
    value = row_sum(words);
    value += __shfl_xor_sync(~0u, value, 16);
    if (halves) value += __shfl_xor_sync(~0u, value, 8);
    if (scaled) value *= rsqrt_fast((row_sum(first) + row_sum(second)) * (1.f / kHidden) + kNormEps);
    __syncwarp();
    if (thread == 0) mbarrier_arrive(empty);
    next.advance();
    return going;
  }

 private:
  // False: the launch has ended. Not bounded by itself: the compute warps' own waits are, and they arrive here too when
  // they end the launch. (The flag is read within what is timed: the clock alone may be read before the barrier is passed.)
  __device__ __forceinline__ bool wait_full() {
    const TraceWait traced(trace);
    wait_at_barrier<kReduceBarrierThreads>(reduce_full(next.slot));
    return !*quit_flag();
  }
};

struct Publish {
  static __device__ __forceinline__ bool run(
      EpilogueLane& lane, const Task& task, bool scaled, bool paired, bool biased, bool halves) {
    u64* packet = lane.params.packets + static_cast<u32>(task.first.y + lane.thread);
    u32 tag = lane.tag(task.first.z);
    asm volatile("" : "+l"(packet), "+r"(tag));
    const float bias = biased ? __ldg(lane.params.biases + task.first.w + (lane.thread & (halves ? 7 : 15))) : 0.f;
    float value;
    if (!lane.take(value, scaled, halves)) return false;
    if (biased) value += bias;
    if (paired) value = gated(activation(value), __shfl_down_sync(~0u, value, 8));
    if (lane.thread < (paired || halves ? 8 : 16)) publish_packet(packet, value, tag);
    return true;
  }
};

// 16 rows of the vocabulary. A NaN logit never wins; it ends the launch through publish_best instead.
struct Head {
  static __device__ __forceinline__ bool run(EpilogueLane& lane, const Task& task) {
    float value;
    if (!lane.take(value, true)) return false;
    value = logit_of(value);
    const int row = task.first.y + lane.thread;
    if (lane.thread >= 16 || row >= kVocab) return true;
    const Params& params = lane.params;
    if (params.logits) params.logits[static_cast<u64>(lane.step - params.head_from) * kVocab + row] = value;
    lane.not_finite |= isnan(value);
    if (value > lane.best) {
      lane.best = value;
      lane.best_row = row;
    }
    return true;
  }
};

// Greedy choice as the largest number: the larger value (in the order-preserving integer form of a float, zeros alike),
// at equality the smaller row. Small code: it runs once per token, and so out of a cold instruction cache.
__device__ __forceinline__ u64 rank(float value, int row) {
  const u32 bits = __float_as_uint(value + 0.f);
  const u32 ordered = bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
  return static_cast<u64>(ordered) << 32 | ~static_cast<u32>(row);
}
__device__ __forceinline__ int row_of(u64 rank) { return static_cast<int>(~static_cast<u32>(rank)); }
__device__ __forceinline__ float value_of_rank(u64 rank) {
  const u32 ordered = static_cast<u32>(rank >> 32);
  return __uint_as_float(ordered ^ (ordered >> 31 ? 0x80000000u : 0xffffffffu));
}

__device__ __forceinline__ u64 warp_max(u64 rank) {
  const u32 high = __reduce_max_sync(~0u, static_cast<u32>(rank >> 32));
  const u32 low = __reduce_max_sync(~0u, static_cast<u32>(rank >> 32) == high ? static_cast<u32>(rank) : 0u);
  return static_cast<u64>(high) << 32 | low;
}

struct PublishBest {
  static __device__ __forceinline__ bool run(EpilogueLane& lane, const Task& task) {
    const bool bad = __any_sync(~0u, lane.not_finite);
    const u64 best = warp_max(rank(lane.best, lane.best_row));
    if (lane.thread == 0) {
      u64* packet = lane.params.packets + task.first.y;
      const u32 tag = lane.tag(task.first.z);
      int row = bad ? -1 : row_of(best);
      if (lane.control && !bad) row |= kCancelBit;
      publish_packet(packet, value_of_rank(best), tag);
      publish_packet(packet + 1, __int_as_float(row), tag);
    }
    // Should this be the next token: its row comes from far away.
    if (!bad && row_of(best) < kVocab) prefetch_embedding(lane.params, row_of(best), lane.thread);
    lane.best = -infinity();
    lane.best_row = kNoRow;
    lane.not_finite = false;
    return true;
  }
};

// Publishes, at gpu scope, the K/V rows that this SM's compute lane appended in this token. The appending threads made
// their writes ready for the copy engine (proxy fence), then arrived on a reduction slot's barrier (release at CTA
// scope), which this thread acquired: the writes happen before the fence here (causality order is transitive over
// scopes), and fence and store form a release pattern at gpu scope. The validator checks that every SM has a unit after
// its last attention task. KvAcquire is the other half.
struct KvRelease {
  static __device__ __forceinline__ bool run(EpilogueLane& lane, const Task& task) {
    if (lane.thread == 0) {
      fence_gpu();
      publish_packet(lane.params.packets + task.first.y, 0.f, lane.tag(task.first.z));
    }
    return true;
  }
};

}  // namespace amk
