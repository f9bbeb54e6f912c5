// How the cached positions are split over attention tasks, and where K/V blocks lie.
#pragma once

#include "ptx.cuh"

namespace amk {

constexpr int kAtomBytes = 512;
constexpr int kKvBlock = 16;
constexpr int kKvBlockBytes = 2 * kKvBlock * kHeadDimPadded * kKvElementBytes;
constexpr int kKvBlocksPerSlot = kSlotBytes / kKvBlockBytes;

// The rules of pos are generated from the schedule IR's. kWindow: how many positions the layer sees, 0 for all.
template <int kWindow>
struct Split {
  int begin, end;
  bool active, last;
  int count;
  __device__ __forceinline__ Split(int pos, int index) {
    count = split_count(pos);
    if (kWindow) {
      begin = min(pos, window_edge(pos, index, kWindow));
      end = min(pos, window_edge(pos, index + 1, kWindow));
    } else {
      const int rows = split_rows(pos);
      begin = index * rows;
      end = min(pos, begin + rows);
    }
    active = index < count;
    last = index == count - 1;
  }
};

__device__ __forceinline__ u64 kv_block_offset(int kv_head, int block) {
  return (static_cast<u64>(kv_head) * (kMaxSeqPadded / kKvBlock) + block) * kKvBlockBytes;
}

}  // namespace amk
