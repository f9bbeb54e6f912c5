// The stream lane: keeps the ring full, and device memory busy, without ever looking at an activation.
#pragma once

#include "handoff.cuh"
#include "ring.cuh"
#include "splits.cuh"

namespace amk {

struct StreamLane : LaneState {
  RingCursor next, landed;
  int outstanding = 0;
  u64 policy;
  const u8* tape;

  __device__ explicit StreamLane(const Params& p)
      : LaneState(p, kStream), policy(evict_first_policy()), tape(p.tape + p.tape_begin[blockIdx.x]) {}

  // One chunk through the ring. A deep queue of copies would make every hand-off wait behind it in L2, so fewer are
  // kept in flight once the ring is stocked. False: the launch has ended.
  __device__ __forceinline__ bool copy(const u8* source, u32 bytes) {
    int alive = 1;
    if (thread == 0) alive = wait_or_quit(*this, empty_barrier(next.slot), next.parity ^ 1);
    if (!__shfl_sync(~0u, alive, 0)) return false;
    const RingCursor probe = next.ahead(kStocked);
    const int stocked = !mbarrier_test(empty_barrier(probe.slot), probe.parity ^ 1);
    const int limit = __shfl_sync(~0u, stocked, 0) ? kInFlightLow : kInFlight;
    while (outstanding >= limit) await_landing();
    copy_to_shared(ring_slot(next.slot), source, bytes, full_barrier(next.slot), policy, thread);
    outstanding++;
    next.advance();
    return true;
  }

  __device__ __forceinline__ void await_landing() {
    wait(*this, full_barrier(landed.slot), landed.parity);
    landed.advance();
    outstanding--;
  }

  // Shared memory must not be given back while copies into it are on their way.
  __device__ void drain() {
    while (outstanding > 0) await_landing();
  }
};

template <int kSteps, int kChunk>
struct CopyTape {
  static __device__ __forceinline__ bool run(StreamLane& lane, const Task& task) {
    const u8* source = lane.tape + static_cast<u64>(task.first.y) * kAtomBytes;
    for (int step = 0; step < kSteps; step += kChunk) {
      const int steps = min(kChunk, kSteps - step);
      if (!lane.copy(source + step * kAtomBytes, steps * kAtomBytes)) return false;
    }
    return true;
  }
};

struct CopyKv {
  static __device__ __forceinline__ bool run(StreamLane& lane, const Task& task) {
    const Split split(lane.pos(), task.first.z);
    if (!split.active) return true;
    const u8* source = lane.params.kv + kv_block_offset(task.first.y, split.begin / kKvBlock);
    const int blocks = (split.end - split.begin + kKvBlock - 1) / kKvBlock;
    for (int block = 0; block < blocks; block += kKvBlocksPerSlot) {
      const u32 bytes = min(kKvBlocksPerSlot, blocks - block) * kKvBlockBytes;
      if (!lane.copy(source + static_cast<u64>(block) * kKvBlockBytes, bytes)) return false;
    }
    return true;
  }
};

// K/V rows were appended by ordinary stores of other SMs. Their kv_release orders the rows before its packet at gpu
// scope; here the poll and the fence acquire it, __syncwarp extends that to the issuing thread, and the proxy fence
// to the copy engine. Rows from earlier launches are ordered by the kernel boundary.
struct KvAcquire {
  static __device__ __forceinline__ bool run(StreamLane& lane, const Task& task) {
    if (lane.step == 0) return true;
    const u32 tag = lane.tag(task.first.z) - kPhases;
    poll(lane, lane.params.packets + task.first.y, tag);
    fence_gpu();
    __syncwarp();
    fence_copy_engine();
    return true;
  }

 private:
  static __device__ __forceinline__ void poll(const StreamLane& lane, const u64* packets, u32 tag) {
    const TraceWait traced(lane.trace);
    Spin spin;
    for (;;) {
      bool all = true;
#pragma unroll
      for (int sm = lane.thread; sm < kSms; sm += 32) all &= arrived(load_packet(packets + sm), tag);
      if (all) return;
      spin.again(lane);
    }
  }
};

}  // namespace amk
