// The shared-memory ring between the stream lane and the compute lane, and the reduction slots behind it.
//
// Slot reuse is sound (PTX ISA, mbarrier phase completion and async proxy): the copy completes on the slot's full barrier (acquired by every compute warp before it reads);
// every compute warp arrives on the empty barrier after its reads, and the stream lane acquires that phase before it
// copies into the slot again. Readers only read between the two, so generic reads never race with the copy engine.
#pragma once

#include "lane.cuh"

namespace amk {

__device__ __forceinline__ u32 full_barrier(int slot) { return shared_address(shared) + kBarriersOffset + 8 * slot; }
__device__ __forceinline__ u32 empty_barrier(int slot) { return full_barrier(kRingStages + slot); }
__device__ __forceinline__ u8* ring_slot(int slot) { return shared + kRingOffset + slot * kSlotBytes; }

// A position in a ring of `kSlots` slots whose barriers alternate phases.
template <int kSlots>
struct Cursor {
  int slot = 0;
  u32 parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

using RingCursor = Cursor<kRingStages>;
using ReduceCursor = Cursor<kReduceSlots>;

// Reduction slot: for each row of a unit every compute warp's partial sum, and as a 17th row their parts of the sum of
// squares. A row is in two halves of 16 bytes or a multiple, so that a thread takes half of one with one load.
constexpr int kHalfWarps = kComputeWarps / 2;
constexpr int kHalfWords = (kHalfWarps + 3) / 4 * 4;
constexpr int kReduceRow = 2 * kHalfWords;
constexpr int kSquaresRow = 16;
constexpr int kReduceSlotBytes = (kSquaresRow + 1) * kReduceRow * 4;
static_assert(kComputeWarps % 2 == 0, "reduction slots are in halves");

// Byte offset in shared memory of a warp's word of row 0.
__device__ __forceinline__ u32 reduce_offset(int slot, int warp) {
  return kReduceOffset + slot * kReduceSlotBytes + (warp / kHalfWarps * kHalfWords + warp % kHalfWarps) * 4;
}
__device__ __forceinline__ u32 reduce_empty(int slot) {
  return shared_address(shared) + kReduceOffset + kReduceSlots * kReduceSlotBytes + 8 * slot;
}

// A slot is full when all compute warps have arrived at its barrier, where the epilogue warp waits: sooner than it would
// see an mbarrier complete. Barrier 0 is __syncthreads, 1 that of the compute warps.
constexpr int kReduceBarrierThreads = (kComputeWarps + 1) * 32;
__device__ __forceinline__ int reduce_full(int slot) { return 2 + slot; }
static_assert(kReduceSlots <= 14, "there are 16 barriers");

__device__ __forceinline__ void init_barriers() {
  for (int slot = 0; slot < kRingStages; slot++) {
    mbarrier_init(full_barrier(slot), kCopyArrivals);
    mbarrier_init(empty_barrier(slot), kComputeWarps);
  }
  for (int slot = 0; slot < kReduceSlots; slot++) mbarrier_init(reduce_empty(slot), 1);
  *quit_flag() = 0;
}

}  // namespace amk
