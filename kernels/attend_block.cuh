// Attention of a warp over a block of 16 positions, on tensor cores.
//
// S = Q K^T with the queries' high halves in rows 0-7 of the mma tile and their low halves in rows 8-15 (so S is exact in
// q), an online softmax per warp (FlashAttention-2, arXiv 2307.08691), then O += P V with P split the same way. A C
// fragment is an A fragment, so P never leaves the registers. Warps take blocks in turn; where heads are wide,
// kValueShares of them take a block together, each with its share of the dims of V.
#pragma once

#include "scratch.cuh"

namespace amk {

constexpr int kWorkers = kComputeWarps / kValueShares;
constexpr int kValueSteps = (kHeadSteps + kValueShares - 1) / kValueShares;  // fragments of V of a warp
static_assert(kComputeWarps % kValueShares == 0, "the same warps for every share of the dims");

// One thread's part of a running softmax: query thread / 4, dims (thread % 4) * 2 + {0, 1} of every block of 8 dims of
// the warp's share.
struct Softmax {
  float output[2 * kValueSteps][4];
  float top = -infinity();
  float sum = 0.f;

  __device__ Softmax() {
#pragma unroll
    for (int i = 0; i < 2 * kValueSteps; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        output[i][j] = 0.f;
        asm volatile("" : "+f"(output[i][j]));  // here, before the wait for q, although used after it
      }
    }
  }

  __device__ __forceinline__ void rescale(float top_now) {
    const float factor = exp2_fast(top - top_now);
    sum *= factor;
#pragma unroll
    for (int i = 0; i < 2 * kValueSteps; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) output[i][j] *= factor;
    }
  }
};

// Keeps positions below `rows` of a pair of positions packed in a register; what the cache holds beyond is undefined.
__device__ __forceinline__ u32 position_mask(int first, int rows) {
  return (first < rows ? 0xffffu : 0u) | (first + 1 < rows ? 0xffff0000u : 0u);
}

// Positions skip .. rows - 1 of a block count. `keys` and `values`: this thread's parts of
// the first fragment of K, and of the warp's share of V, which begins at fragment `share`. `fresh`: there is no sum yet.
__device__ __forceinline__ void attend_block(
    Softmax& state, int thread, int share, bool fresh, int skip, int rows, const u8* keys, const u8* values) {
  const uint4* queries = reinterpret_cast<const uint4*>(shared + kScratchOffset) + thread;
  float scores[2][4] = {};
#pragma unroll kScoreUnroll
  for (int i = 0; i < kHeadSteps; i++) {
    const uint4 q = queries[i * 32];
    const Kv::Fragment k = Kv::load(keys + i * Kv::kFragmentBytes);
#pragma unroll
    for (int t = 0; t < Kv::kTerms; t++) {
      Kv::Mma::mma(scores[0], q, k.term[t].x, k.term[t].y);
      Kv::Mma::mma(scores[1], q, k.term[t].z, k.term[t].w);
    }
  }
  const int first = (thread & 3) * 2;
  float s[2][2];
  float top = state.top;
#pragma unroll
  for (int n = 0; n < 2; n++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int row = n * 8 + first + j;
      const bool visible = row < rows && row >= skip;
      s[n][j] = visible ? score(scores[n][j] + scores[n][j + 2]) : -infinity();
      top = fmaxf(top, s[n][j]);
    }
  }
  top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
  top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
  if (!fresh) state.rescale(top);
  state.top = top;
  uint4 p;
#pragma unroll
  for (int n = 0; n < 2; n++) {
    const float a = exp2_fast(s[n][0] - top), b = exp2_fast(s[n][1] - top);
    state.sum += a + b;
    split_pair<Kv::Mma>(a, b, n ? p.z : p.x, n ? p.w : p.y);
  }
  const u32 low = position_mask(first, rows), high = position_mask(first + 8, rows);
#pragma unroll
  for (int i = 0; i < kValueSteps; i++) {
    if (kHeadSteps % kValueShares && share + i >= kHeadSteps) break;
    const Kv::Fragment v = Kv::load(values + i * Kv::kFragmentBytes);
#pragma unroll
    for (int t = 0; t < Kv::kTerms; t++) {
      Kv::Mma::mma(state.output[2 * i], p, v.term[t].x & low, v.term[t].y & high);
      Kv::Mma::mma(state.output[2 * i + 1], p, v.term[t].z & low, v.term[t].w & high);
    }
  }
}

}  // namespace amk
