// Storing the new K/V row, off the chain.
#pragma once

#include "scratch.cuh"

namespace amk {

// Row `pos` of the cache, by the task after the last active split, when others no longer wait for this SM. The block that
// it lies in was copied (for the rows before it) by this SM only, and that copy has landed: attend acquired its full
// barrier.
struct Append {
  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task, int window) {
    if (!Split(lane.pos(), task.first.z, window).last) return;
    append(lane, task.first.y);
    compute_barrier<kComputeThreads>();  // the new row may be overwritten
  }

 private:
  static __device__ __forceinline__ void append(ComputeLane& lane, int kv_head) {
    u8* block = lane.params.kv + kv_block_offset(kv_head, lane.pos() / kKvBlock);
    const u32 p = lane.pos() % kKvBlock;
    for_mine<kHeadDimPadded>(lane, [&](u32 dim) {
      const Kv::Element key = *reinterpret_cast<const Kv::Element*>(shared + kScratchOffset + new_key(dim));
      const Kv::Element value = *reinterpret_cast<const Kv::Element*>(shared + kScratchOffset + new_value(dim));
      u8* fragment = block + dim / 16 * Kv::kFragmentBytes;
      *reinterpret_cast<Kv::Element*>(fragment + Kv::key_offset(p, dim)) = key;
      *reinterpret_cast<Kv::Element*>(fragment + kHeadSteps * Kv::kFragmentBytes + Kv::value_offset(p, dim)) = value;
      if (!Kv::finite(key) || !Kv::finite(value)) report_overflow(lane.params.report, kv_head, lane.pos());
    });
    fence_copy_engine();
  }

  static __device__ __noinline__ void report_overflow(Report* report, int kv_head, int pos) {
    if (atomicOr_system(&report->status, kOverflow) & kOverflow) return;
    report->record = kv_head;
    report->step = pos;
  }
};

}  // namespace amk
