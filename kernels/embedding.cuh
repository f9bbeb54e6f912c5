// Where a token's row of the embedding lies: in the weight tiles of a tied head, or in an array of rows.
#pragma once

#include "params.cuh"
#include "splits.cuh"

namespace amk {

// The row's first element, and the distance in bytes of elements k, k + 1 (k even) from it.
__device__ __forceinline__ const u8* embedding_row(const Params& params, int token) {
  if (!kTiedHead) return params.embedding + static_cast<u64>(token) * kHidden * 2;
  const int r = token % 16;
  return params.embedding + __ldg(params.head_units + token / 16) + (r % 8) * 64 + (r / 8) * 4;
}
__device__ __forceinline__ u32 embedding_offset(u32 k) {
  if (!kTiedHead) return k * 2;
  return (k / 16) * kAtomBytes + (k % 8) / 2 * 16 + (k % 16) / 8 * 8;
}

// Has L2 fetch a row, by one warp: 32 bytes a thread and turn.
__device__ __forceinline__ void prefetch_embedding(const Params& params, int token, int thread) {
  constexpr int kSectors = kHiddenPadded / (kTiedHead ? 8 : 16);  // in tiles, half of each is another row's
  const u8* row = embedding_row(params, token);
#pragma unroll 1
  for (int sector = thread; sector < kSectors; sector += 32)
    prefetch_l2(row + (kTiedHead ? sector / 2 * kAtomBytes + sector % 2 * 32 : sector * 32));
}

}  // namespace amk
