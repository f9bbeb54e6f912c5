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
  using AheadT = RecordAhead;
  u32 begin, full, slot;  // first full barrier, full barrier of the next slot, the slot
  u32 parity = 0;
  u64 policy;
  const u8* tape;
  const u8* tape_end;
  const u8* prefetched = nullptr;  // up to here
  long long prefetched_at = 0;

  __device__ explicit StreamLane(const Params& p)
      : LaneState(p, kStream), begin(full_barrier(0)), full(begin), slot(shared_address(shared) + kRingOffset),
        policy(evict_first_policy()), tape(p.tape + p.tape_begin[blockIdx.x]),
        tape_end(p.tape + p.tape_begin[blockIdx.x + 1]) {}

  // Chunks to keep on their way: a deep queue of copies makes every hand-off wait behind it in L2, so fewer than `most`
  // once the ring is stocked, that is once the slot `stocked` behind the next free one is still taken. Asked for every
  // chunk: at what the ring was when a unit began, 3B was 1 % slower. Without arguments: of K/V.
  __device__ __forceinline__ int limit(int most = kInFlight, int stocked = kStocked) const {
    u32 barrier = full + 8 * kRingStages + 8 * (kRingStages - stocked), phase = parity ^ 1;
    if (barrier >= begin + 16 * kRingStages) {
      barrier -= 8 * kRingStages;
      phase ^= 1;
    }
    return mbarrier_test(barrier, phase) ? most : kInFlightLow;
  }

  // One chunk, when at most `limit` are on their way with it. False: the launch has ended.
  __device__ __forceinline__ bool copy_chunk(const u8* source, u32 bytes, int limit) {
    if (!wait_free(full + 8 * kRingStages, parity ^ 1, source)) return false;
    if (limit < kRingStages) await_landing(limit);  // what was in this slot has landed
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

  // The chunk issued `back` chunks ago has landed; `back` is less than the slots, so that its barrier goes on with a chunk
  // that no thread asks for before all are done here. (Before there were so many, the barrier's phase before the first
  // is asked for, which counts as complete. At the end no chunk comes any more, and all slots may be asked for.)
  __device__ __forceinline__ void await_landing(int back) {
    u32 barrier = full - 8 * back, phase = parity;
    if (barrier < begin) {
      barrier += 8 * kRingStages;
      phase ^= 1;
    }
    wait(*this, barrier, phase);
  }

  // All threads wait together and leave together: one that left alone would leave the others waiting for its copies.
  __device__ __forceinline__ bool wait_free(u32 barrier, u32 phase, const u8* source) {
    const TraceWait traced(trace);
    Spin spin;
    while (!__all_sync(~0u, kPrefetchChunks ? mbarrier_test(barrier, phase) : mbarrier_try(barrier, phase))) {
      if (kPrefetchChunks) prefetch(source);
      if (__any_sync(~0u, *quit_flag())) return false;
      spin.again(*this, kComputeLane);
    }
    return true;
  }

  // The ring is full: lets L2 take the tape from the chunk that waits for a slot on, so that device memory goes on
  // reading; a chunk at a time, at the pace at which memory reads one for every SM.
  __device__ __forceinline__ void prefetch(const u8* source) {
    const long long now = clock64();
    if (now - prefetched_at < kPrefetchClocks || source < tape || source >= tape_end) return;
    const u8* begin = prefetched > source && prefetched <= source + kPrefetchChunks * kSlotBytes ? prefetched : source;
    if (begin + kSlotBytes > tape_end || begin >= source + kPrefetchChunks * kSlotBytes) return;
    prefetched_at = now;
    prefetched = begin + kSlotBytes;
    if (thread == 0) prefetch_to_l2(begin, kSlotBytes, policy);
  }

  // Shared memory must not be given back while copies into it are on their way.
  __device__ void drain() {
#pragma unroll 1
    for (int back = 1; back <= kRingStages; back++) await_landing(back);
  }
};

// `steps` k-steps in chunks of `chunk`.
struct CopyTape {
  static __device__ __forceinline__ bool run(StreamLane& lane, const Task& task, int steps, int chunk) {
    const u8* source = lane.tape + static_cast<u64>(task.first.y) * kAtomBytes;
#pragma unroll 1
    for (int step = 0; step < steps; step += chunk) {
      const u32 bytes = (steps % chunk == 0 ? chunk : min(chunk, steps - step)) * kAtomBytes;
      if (!lane.copy_chunk(source, bytes, lane.limit(task.first.z, task.first.w))) return false;
      source += chunk * kAtomBytes;
    }
    return true;
  }
};

struct CopyKv {
  static __device__ __forceinline__ bool run(StreamLane& lane, const Task& task, int window) {
    const Split split(lane.pos(), task.first.z, window);
    if (!split.active) return true;
    const u8* source = lane.params.kv + kv_block_offset(task.first.y, split.begin / kKvBlock);
    const int blocks = split.blocks();
#pragma unroll 1
    for (int block = 0; block < blocks; block += kKvBlocksPerSlot) {
      const u32 bytes = min(kKvBlocksPerSlot, blocks - block) * kKvBlockBytes;
      if (!lane.copy_chunk(source + static_cast<u64>(block) * kKvBlockBytes, bytes, lane.limit())) return false;
    }
    return true;
  }
};

// K/V rows were appended by ordinary stores of other SMs. Their kv_release orders the rows before its packet at gpu
// scope; here the poll and the fence acquire it, __syncwarp extends that to the issuing thread, and the proxy fence
// to the copy engine. Rows from earlier launches are ordered by the kernel boundary. Threads that have left (the launch
// ended) are not waited for.
struct KvAcquire {
  static __device__ __forceinline__ bool run(const StreamLane& lane, const Task& task) {
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
      for (int i = 0; i < (kSms + 31) / 32; i++) {
        const int sm = i * 32 + lane.thread;
        if (sm < kSms) all &= arrived(load_packet(packets + sm), tag);
      }
      if (all || *quit_flag()) return;
      spin.again(lane);
    }
  }
};

}  // namespace amk
