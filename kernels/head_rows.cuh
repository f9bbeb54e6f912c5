// How the compute threads share the rows of q heads, k and v that an attention task loads.
#pragma once

#include "compute_lane.cuh"

namespace amk {

constexpr int kHeadHalf = kRotaryDim / 2;  // RoPE rotates dims d and d + kHeadHalf together

// Some neighbouring dims of a row from `dim` on, and as many from dim + partner() on: those that RoPE rotates them with;
// beyond the rotated dims, the next.
struct HeadItem {
  static constexpr int kRun = kHeadHalf % 2 || kHeadDim % 4 ? 1 : 2;  // two, if that divides both parts
  static constexpr bool kWhole = kRotaryDim == kHeadDim && kHeadHalf % 16 == 0;  // partners are whole fragments apart

  int row;    // query heads, then k, then v
  u32 place;  // in the row
  u32 dim;
  bool valid;

  __device__ __forceinline__ bool rotates() const { return kRotaryDim == kHeadDim || place * kRun < kHeadHalf; }
  __device__ __forceinline__ u32 partner() const { return rotates() ? kHeadHalf : kRun; }
};

template <int kQueries>
struct HeadRows {
  static constexpr int kRun = HeadItem::kRun;
  static constexpr int kPerRow = kHeadDim / (2 * kRun);
  static constexpr int rounds(int threads) { return ((kQueries + 2) * threads + kComputeThreads - 1) / kComputeThreads; }

  // A row has warps of its own where that takes no more rounds: warps then hold only q, k or v.
  static constexpr int kWarpAligned = (kPerRow + 31) / 32 * 32;
  static constexpr int kThreadsPerRow = rounds(kWarpAligned) == rounds(kPerRow) ? kWarpAligned : kPerRow;
  static constexpr int kItems = rounds(kThreadsPerRow);  // of a thread

  // Item i of this thread; valid if it is one of the first `rows` rows'.
  static __device__ __forceinline__ HeadItem item(const ComputeLane& lane, int i, int rows) {
    const u32 index = lane.index() + i * kComputeThreads;
    HeadItem item;
    item.row = index / kThreadsPerRow;
    item.place = index % kThreadsPerRow;
    item.dim = item.place * kRun;
    if (!item.rotates()) item.dim *= 2;
    item.valid = item.row < rows && (kThreadsPerRow == kPerRow || item.place < kPerRow);
    return item;
  }
};

}  // namespace amk
