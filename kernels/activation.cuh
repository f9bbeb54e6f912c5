// Bringing activations into the activation buffer: embedding, residual + norm, gather.
#pragma once

#include "compute_lane.cuh"
#include "embedding.cuh"

namespace amk {

constexpr int kPollRounds = 8;  // packet pairs that a thread polls together: one L2 round trip for all of them

// Where a batch of packet pairs is polled: this thread's of the rounds from `first` on. `mine` is that of round 0.
template <int kSteps>
struct PollPlace {
  const u64* mine;
  u32 tag;
  int first, length;

  __device__ __forceinline__ bool valid(const ComputeLane& lane, int i) const {
    return Slice<kSteps>::valid(lane, first + i, length);
  }
  __device__ __forceinline__ const u64* packet(int i) const { return mine + (first + i) * Slice<kSteps>::kStride; }
};

// This thread's pair of round 0 of the vector at packet `source`. 32-bit sums: one wide addition, the rest is constant.
template <int kSteps>
__device__ __forceinline__ const u64* my_packets(const ComputeLane& lane, u32 source) {
  return lane.params.packets + (source + Slice<kSteps>::element(lane, 0));
}

// One thread polls for the SM until its first packet is there: all threads of all SMs polling all packets from the
// start would take L2 bandwidth from the stores that they wait for, and from the weight stream.
template <int kSteps>
__device__ __forceinline__ void wait_first(const ComputeLane& lane, const PollPlace<kSteps>& place) {
  if (lane.index() == 0) {
    Spin spin;
    while (!arrived(load_packet(place.packet(0)), place.tag)) spin.again(lane);
  }
  compute_barrier<kComputeThreads>();
}

struct Nothing {
  __device__ __forceinline__ void operator()() const {}
};

// Polls a batch of this thread's packet pairs, again only those that are missing. Elements from `length` on are zero.
// `meanwhile` is called once, while the first answers are on their way.
template <int kCount, int kSteps, typename Meanwhile = Nothing>
__device__ __forceinline__ void poll_batch(
    const ComputeLane& lane, const PollPlace<kSteps>& place, float (&values)[kCount][2],
    Meanwhile&& meanwhile = Nothing{}) {
  const TraceWait traced(lane.trace);
  wait_first<kSteps>(lane, place);
  u64 a[kCount], b[kCount];
#pragma unroll
  for (int i = 0; i < kCount; i++) {
    a[i] = b[i] = static_cast<u64>(place.tag) << 32;
    if (place.valid(lane, i)) load_packet_pair(place.packet(i), a[i], b[i]);
  }
  meanwhile();
  Spin spin;
  for (;;) {
    bool all = true;
#pragma unroll
    for (int i = 0; i < kCount; i++) all &= arrived(a[i], place.tag) & arrived(b[i], place.tag);
    if (all) break;
    spin.again(lane);
#pragma unroll
    for (int i = 0; i < kCount; i++)
      if (!arrived(a[i], place.tag) | !arrived(b[i], place.tag)) load_packet_pair(place.packet(i), a[i], b[i]);
  }
#pragma unroll
  for (int i = 0; i < kCount; i++) {
    values[i][0] = value_of(a[i]);
    values[i][1] = value_of(b[i]);
  }
}

// Calls body(first round, Constant<count>) for batches of rounds, as even as they can be.
template <int kRounds, int kFirst = 0, typename Body>
__device__ __forceinline__ void for_batches(Body&& body) {
  if constexpr (kFirst < kRounds) {
    constexpr int kBatches = (kRounds - kFirst + kPollRounds - 1) / kPollRounds;
    constexpr int kCount = (kRounds - kFirst + kBatches - 1) / kBatches;
    body(kFirst, Constant<kCount>{});
    for_batches<kRounds, kFirst + kCount>(body);
  }
}

// x = packets of another phase, as they are.
template <int kSteps, int kLength>
struct Gather {
  template <typename Meanwhile = Nothing>
  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task, Meanwhile&& meanwhile = Nothing{}) {
    const u64* mine = my_packets<kSteps>(lane, task.first.y);
    const u32 tag = lane.tag(task.first.z);
    for_batches<Slice<kSteps>::kRounds>([&](int first, auto count) {
      constexpr int kCount = decltype(count)::value;
      float values[kCount][2];
      poll_batch(lane, PollPlace<kSteps>{mine, tag, first, kLength}, values, [&] {
        if (first == 0) meanwhile();
      });
#pragma unroll
      for (int i = 0; i < kCount; i++) store_x<kSteps>(lane, first + i, values[i][0], values[i][1]);
    });
    __syncwarp();
  }
};

// Stores residual * norm weight as x and adds to the thread's sum of squares. RMSNorm's scale comes in the epilogue.
template <int kSteps>
struct Norm {
  // This thread's weights of round 0 in a row of the norms.
  static __device__ __forceinline__ const float* row(const ComputeLane& lane, u32 row) {
    return lane.params.norms + (row * kHiddenPadded + Slice<kSteps>::element(lane, 0));
  }
  static __device__ __forceinline__ float2 weight(const ComputeLane& lane, const float* row, int round) {
    if (!Slice<kSteps>::valid(lane, round, kHidden)) return make_float2(0.f, 0.f);
    return __ldg(reinterpret_cast<const float2*>(row + round * Slice<kSteps>::kStride));
  }
  static __device__ __forceinline__ void store(ComputeLane& lane, int round, float2 value, float2 weight, float& sum) {
    sum += value.x * value.x + value.y * value.y;
    store_x<kSteps>(lane, round, value.x * weight.x, value.y * weight.y);
  }
  static __device__ __forceinline__ void finish(ComputeLane& lane, float sum) {
    lane.squares = sum;
    __syncwarp();
  }
};

template <int kSteps>
struct EmbedNorm {
  static constexpr u32 kRoundBytes = Slice<kSteps>::kStride * (kTiedHead ? 32 : 2);  // from one round to the next

  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task) {
    float sum = 0.f;
    const u8* row = embedding_row(lane.params, lane.token) + embedding_offset(Slice<kSteps>::element(lane, 0));
    const float* norm = Norm<kSteps>::row(lane, task.first.y);
    for_batches<Slice<kSteps>::kRounds>([&](int first, auto count) {
      constexpr int kCount = decltype(count)::value;
      float2 weights[kCount], values[kCount];
#pragma unroll
      for (int i = 0; i < kCount; i++) {
        weights[i] = Norm<kSteps>::weight(lane, norm, first + i);
        values[i] = make_float2(0.f, 0.f);
        if (Slice<kSteps>::valid(lane, first + i, kHidden)) values[i] = load(row + (first + i) * kRoundBytes);
      }
#pragma unroll
      for (int i = 0; i < kCount; i++) {
        *residual(lane, first + i) = values[i];
        Norm<kSteps>::store(lane, first + i, values[i], weights[i], sum);
      }
    });
    Norm<kSteps>::finish(lane, sum);
  }

 private:
  static __device__ __forceinline__ float2 load(const u8* pair) {
    const u32 packed = __ldg(reinterpret_cast<const u32*>(pair));
    return make_float2(kEmbedScale * Bf16::low(packed), kEmbedScale * Bf16::high(packed));
  }
};

template <int kSteps, int kParts, int kStride>
struct AddNorm {
  template <typename Meanwhile = Nothing>
  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task, Meanwhile&& meanwhile = Nothing{}) {
    float sum = 0.f;
    const u64* mine = my_packets<kSteps>(lane, task.first.y);
    const float* norm = Norm<kSteps>::row(lane, task.first.w);
    const u32 tag = lane.tag(task.first.z);
    for_batches<Slice<kSteps>::kRounds>([&](int first, auto count) {
      constexpr int kCount = decltype(count)::value;
      float2 weights[kCount], values[kCount];
#pragma unroll
      for (int i = 0; i < kCount; i++) {  // before the wait: nothing here depends on it
        weights[i] = Norm<kSteps>::weight(lane, norm, first + i);
        values[i] = *residual(lane, first + i);
      }
#pragma unroll
      for (int part = 0; part < kParts; part++) {
        float arrivals[kCount][2];
        poll_batch(lane, PollPlace<kSteps>{mine + part * kStride, tag, first, kHidden}, arrivals, [&] {
          if (first == 0 && part == 0) meanwhile();
        });
#pragma unroll
        for (int i = 0; i < kCount; i++) {
          values[i].x += kResidualMultiplier * arrivals[i][0];
          values[i].y += kResidualMultiplier * arrivals[i][1];
        }
      }
#pragma unroll
      for (int i = 0; i < kCount; i++) {
        *residual(lane, first + i) = values[i];
        Norm<kSteps>::store(lane, first + i, values[i], weights[i], sum);
      }
    });
    Norm<kSteps>::finish(lane, sum);
  }
};

}  // namespace amk
