// 1/rms of q and k heads for their RMSNorm before RoPE. Sums of squares meet in the scratch region, in a fixed order.
#pragma once

#include "head_rows.cuh"
#include "scratch.cuh"

namespace amk {

static_assert(kHeads % kKvHeads == 0, "query heads share K/V heads evenly");

enum QkScope : int { kNoNorm = 0, kPerHead = 1, kProjection = 2 };

constexpr int power_of_two_in(int n, int limit) { return n % 2 || limit == 1 ? 1 : 2 * power_of_two_in(n / 2, limit / 2); }

template <int kScope, int kQueries>
struct QkNorm;

// Over each head.
template <int kQueries>
struct QkNorm<kPerHead, kQueries> {
  using Rows = HeadRows<kQueries>;
  static constexpr int kRun = Rows::kRun;
  static constexpr int kWidth = power_of_two_in(Rows::kPerRow * kRun, 32) / kRun;  // lanes whose items are of one row
  static constexpr int kSums = Rows::kPerRow / kWidth;

  __device__ __forceinline__ QkNorm(
      ComputeLane& lane, const u64*, int rows, u32, const float (&values)[Rows::kItems][2][kRun]) {
#pragma unroll
    for (int i = 0; i < Rows::kItems; i++) {
      const HeadItem item = Rows::item(lane, i, rows);
      float sums[kRun];
#pragma unroll
      for (int r = 0; r < kRun; r++) {
        const float a = values[i][0][r], b = values[i][1][r];
        sums[r] = item.valid ? a * a + b * b : 0.f;
#pragma unroll
        for (int distance = kWidth / 2; distance; distance >>= 1) sums[r] += __shfl_xor_sync(~0u, sums[r], distance);
      }
      if (item.valid && item.place % kWidth == 0)
        partials()[item.row * kSums + item.place / kWidth] = kRun == 1 ? sums[0] : sums[0] + sums[kRun - 1];
    }
    compute_barrier<kComputeThreads>();
  }

  __device__ __forceinline__ float scale(int row, bool) const {
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < kSums; i++) sum += partials()[row * kSums + i];
    return rsqrtf(sum / kHeadDim + kNormEps);
  }
};

// Over all heads of q, and of k: each task polls them all, the heads of other tasks too.
template <int kQueries>
struct QkNorm<kProjection, kQueries> {
  float q_scale, k_scale;

  template <typename Values>
  __device__ __forceinline__ QkNorm(ComputeLane& lane, const u64* packets, int rows, u32 tag, const Values&) {
    constexpr int kWidthQ = kHeads * kHeadDim, kWidthK = kKvHeads * kHeadDim;
    const float q = warp_sum(squares(lane, packets, kWidthQ, tag));
    const float k = warp_sum(rows > kQueries ? squares(lane, packets + kWidthQ, kWidthK, tag) : 0.f);
    if (lane.thread == 0) {
      partials()[2 * lane.warp] = q;
      partials()[2 * lane.warp + 1] = k;
    }
    compute_barrier<kComputeThreads>();
    float sums[2] = {};
    for (int i = 0; i < 2 * kComputeWarps; i++) sums[i % 2] += partials()[i];
    q_scale = rsqrtf(sums[0] / kWidthQ + kNormEps);
    k_scale = rsqrtf(sums[1] / kWidthK + kNormEps);
  }

  __device__ __forceinline__ float scale(int, bool is_key) const { return is_key ? k_scale : q_scale; }

 private:
  static __device__ __forceinline__ float squares(const ComputeLane& lane, const u64* packets, int width, u32 tag) {
    float sum = 0.f;
#pragma unroll 1
    for (int i = 2 * lane.index(); i < width; i += 2 * kComputeThreads) {
      u64 a, b;
      Spin spin;
      for (;;) {
        load_packet_pair(packets + i, a, b);
        if (arrived(a, tag) & arrived(b, tag)) break;
        spin.again(lane);
      }
      sum += value_of(a) * value_of(a) + value_of(b) * value_of(b);
    }
    return sum;
  }
};

}  // namespace amk
