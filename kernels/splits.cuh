// How the cached positions are split over attention tasks, and where K/V blocks lie.
#pragma once

#include "ptx.cuh"

namespace amk {

constexpr int kAtomBytes = 512;
constexpr int kKvBlock = 16;
constexpr int kKvBlockBytes = 2 * kKvBlock * kHeadDimPadded * kKvElementBytes;
constexpr int kKvBlocksPerSlot = kSlotBytes / kKvBlockBytes;

// The rules of pos are generated from the schedule IR's. `window`: how many positions the layer sees, 0 for all.
// Of split_count's splits only comparisons are needed: split i is one of them where i * rows < pos (and split 0 always),
// and it is the last where the next is none. That saves a division, of some 30 instructions.
struct Split {
  int begin, end;
  bool active, last, only;
  __device__ __forceinline__ Split(int pos, int index, int window) {
    const int rows = split_rows(pos), next = (index + 1) * rows;
    active = index == 0 || index * rows < pos;
    last = active && next >= pos;
    only = rows >= pos;
    if (window) {
      begin = min(pos, window_edge(pos, index, window));
      end = min(pos, window_edge(pos, index + 1, window));
    } else {
      begin = index * rows;
      end = min(pos, next);
    }
  }

  // Of cached positions; the last may be part of one.
  __device__ __forceinline__ u32 blocks() const { return static_cast<u32>(end - begin + kKvBlock - 1) / kKvBlock; }
};

__device__ __forceinline__ u64 kv_block_offset(int kv_head, int block) {
  return static_cast<u64>(static_cast<u32>(kv_head * (kMaxSeqPadded / kKvBlock) + block)) * kKvBlockBytes;
}

}  // namespace amk
