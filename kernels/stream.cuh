// The stream lane: keeps the ring full, and device memory busy, without ever looking at an activation.
#pragma once

#include "handoff.cuh"
#include "ring.cuh"
#include "splits.cuh"

namespace amk {

// Every instruction here is paid once per chunk, and a single warp cannot hide its own latency: the state is kept as
// shared-memory addresses, and all threads walk in step although one of them issues bulk copies (a lone active thread
// was measured to be slower: 0.70 against 0.62 ms/token on a 1B model).
struct StreamLane : LaneState {
  u32 begin, full, slot;  // first full barrier, full barrier of the next slot, the slot
  u32 parity = 0;
  u64 policy;
  const u8* tape;

  __device__ explicit StreamLane(const Params& p)
      : LaneState(p, kStream), begin(full_barrier(0)), full(begin), slot(shared_address(shared) + kRingOffset),
        policy(evict_first_policy()), tape(p.tape + p.tape_begin[blockIdx.x]) {}

  // Chunks to keep on their way: a deep queue of copies makes every hand-off wait behind it in L2, so fewer once the
  // ring is stocked, that is once the slot kStocked behind the next free one is still taken.
  __device__ __forceinline__ int limit() const {
    u32 barrier = full + 8 * kRingStages + 8 * (kRingStages - kStocked), phase = parity ^ 1;
    if (barrier >= begin + 16 * kRingStages) {
      barrier -= 8 * kRingStages;
      phase ^= 1;
    }
    return mbarrier_test(barrier, phase) ? kInFlight : kInFlightLow;
  }

  // One chunk through the ring, when at most `limit` are on their way with it. False: the launch has ended.
  __device__ __forceinline__ bool copy(const u8* source, u32 bytes, int limit) {
    if (!wait_free(full + 8 * kRingStages, parity ^ 1)) return false;
    await_landing(limit);
    if (kCopyArrivals > 1 || thread == 0) copy_to_shared(slot, source, bytes, full, policy, thread);
    full += 8;
    slot += kSlotBytes;
    if (full == begin + 8 * kRingStages) {
      full = begin;
      slot -= kSlotBytes * kRingStages;
      parity ^= 1;
    }
    return true;
  }

  // The chunk issued `back` chunks ago has landed. (Before there were so many, the barrier's phase before the first is
  // asked for, which counts as complete.)
  __device__ __forceinline__ void await_landing(int back) {
    u32 barrier = full - 8 * back, phase = parity;
    if (barrier < begin) {
      barrier += 8 * kRingStages;
      phase ^= 1;
    }
    wait(*this, barrier, phase);
  }

  // All threads wait together and leave together: one that left alone would leave the others waiting for its copies.
  __device__ __forceinline__ bool wait_free(u32 barrier, u32 phase) {
    const TraceWait traced(trace);
    Spin spin;
#if P_PF
    while (!__all_sync(~0u, mbarrier_test(barrier, phase))) {
      prefetch_ahead();
#else
    while (!__all_sync(~0u, mbarrier_try(barrier, phase))) {
#endif
      if (__any_sync(~0u, *quit_flag())) return false;
      spin.again(*this, kComputeLane);
    }
    return true;
  }

#if P_PF
  const u8* ahead = nullptr;   // prefetched up to here
  const u8* cursor = nullptr;  // the chunk that waits for a slot
  const u8* end;
  long long last = 0;
  __device__ __forceinline__ void prefetch_ahead() {
    const long long now = clock64();
    if (now - last < P_PF) return;
    const u8* from = ahead > cursor && ahead < cursor + (P_DEPTH + 1) * kSlotBytes ? ahead : cursor;
    if (from + kSlotBytes > end || from >= cursor + P_DEPTH * kSlotBytes) return;
    last = now;
    if (thread == 0)
      asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(from), "r"(kSlotBytes), "l"(policy) : "memory");
    ahead = from + kSlotBytes;
  }
#endif

  // Shared memory must not be given back while copies into it are on their way.
  __device__ void drain() {
    for (int back = 1; back <= kRingStages; back++) await_landing(back);
  }
};

template <int kSteps, int kChunk>
struct CopyTape {
  static __device__ __forceinline__ bool run(StreamLane& lane, const Task& task) {
    const u8* source = lane.tape + static_cast<u64>(task.first.y) * kAtomBytes;
    const int limit = lane.limit();
#if P_PF
    lane.end = lane.tape + (lane.params.tape_begin[blockIdx.x + 1] - lane.params.tape_begin[blockIdx.x]);
#endif
#pragma unroll 1
    for (int step = 0; step < kSteps; step += kChunk) {
      const u32 bytes = (kSteps % kChunk == 0 ? kChunk : min(kChunk, kSteps - step)) * kAtomBytes;
#if P_PF
      lane.cursor = source;
#endif
      if (!lane.copy(source, bytes, limit)) return false;
      source += kChunk * kAtomBytes;
    }
    return true;
  }
};

template <int kWindow>
struct CopyKv {
  static __device__ __forceinline__ bool run(StreamLane& lane, const Task& task) {
    const Split<kWindow> split(lane.pos(), task.first.z);
    if (!split.active) return true;
    const u8* source = lane.params.kv + kv_block_offset(task.first.y, split.begin / kKvBlock);
    const int blocks = (split.end - split.begin + kKvBlock - 1) / kKvBlock;
#pragma unroll 1
    for (int block = 0; block < blocks; block += kKvBlocksPerSlot) {
      const u32 bytes = min(kKvBlocksPerSlot, blocks - block) * kKvBlockBytes;
#if P_PF
      lane.cursor = lane.end;
#endif
      if (!lane.copy(source + static_cast<u64>(block) * kKvBlockBytes, bytes, lane.limit())) return false;
    }
    return true;
  }
};

// K/V rows were appended by ordinary stores of other SMs. Their kv_release orders the rows before its packet at gpu
// scope; here the poll and the fence acquire it, __syncwarp extends that to the issuing thread, and the proxy fence
// to the copy engine. Rows from earlier launches are ordered by the kernel boundary. Threads that have left (the launch
// ended) are not waited for.
struct KvAcquire {
  static __device__ __forceinline__ bool run(StreamLane& lane, const Task& task) {
    if (lane.step == 0) return true;
    poll(lane, lane.params.packets + task.first.y, lane.tag(task.first.z) - kPhases);
    fence_gpu();
    __syncwarp();
    fence_copy_engine();
    return !__any_sync(~0u, *quit_flag());
  }

 private:
  static __device__ __forceinline__ void poll(const StreamLane& lane, const u64* packets, u32 tag) {
    const TraceWait traced(lane.trace);
    Spin spin;
    for (;;) {
      bool all = true;
#pragma unroll
      for (int sm = lane.thread; sm < kSms; sm += 32) all &= arrived(load_packet(packets + sm), tag);
      if (all || *quit_flag()) return;
      spin.again(lane);
    }
  }
};

}  // namespace amk
