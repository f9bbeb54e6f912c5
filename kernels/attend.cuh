// Grouped-query attention of up to 8 query heads over one split of the cached positions.
#pragma once

#include "attend_block.cuh"
#include "qk_norm.cuh"

namespace amk {

// `window`: positions that the layer sees, 0 for all; `rope`: table that rotates q and k, from 1, 0 for none. Literals,
// unless layers differ in them.
template <int kQueries, int kQkNorm>
struct Attend {
  using Rows = HeadRows<kQueries>;
  static constexpr int kRun = Rows::kRun, kItems = Rows::kItems;
  using Values = float[kItems][2][kRun];

  struct Fields {
    int phase, query, key, value, partial, output, qkv, norm;

    // Where the packets of a row start.
    __device__ __forceinline__ int row(int row) const {
      return row < kQueries ? query + row * kHeadDim : row == kQueries ? key : value;
    }
  };

  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task, int window, int rope) {
    const int index = task.first.y;
    const Split split(lane.pos(), index, window);
    if (!split.active) return;
    const int4 second = task.second(), third = task.third();
    const Fields f{task.first.w, second.x, second.y, second.z, second.w, third.x, third.y, third.z};
    Softmax state;
    load_rows(lane, f, kQueries + (split.last ? 2 : 0), rope);
    compute_barrier<kComputeThreads>();
    attend_blocks(lane, split, window, state);
    leave_partial(lane, state);
    compute_barrier<kComputeThreads>();
    publish(lane, f, split.only, index, window);
    compute_barrier<kComputeThreads>();  // the scratch region is free for the next task
  }

 private:
  static __device__ __forceinline__ int worker(const ComputeLane& lane) { return lane.warp / kValueShares; }
  static __device__ __forceinline__ int share(const ComputeLane& lane) { return lane.warp % kValueShares * kValueSteps; }

  // Waits for q (and the new k and v), applies RoPE, leaves Q as A fragments and the new row in the scratch region.
  static __device__ __forceinline__ void load_rows(ComputeLane& lane, const Fields& f, int rows, int rope) {
    const u32 tag = lane.tag(f.phase);
    float2 angles[kItems][kRun];
    u32 targets[kItems];
#pragma unroll
    for (int i = 0; i < kItems; i++) {
      const HeadItem item = Rows::item(lane, i, rows);
      targets[i] = target(item, item.dim);
      asm volatile("" : "+r"(targets[i]));  // before the wait, although used after it
#pragma unroll
      for (int r = 0; r < kRun && kRotaryDim < kHeadDim; r++) angles[i][r] = make_float2(1.f, 0.f);
      if (rope && item.valid && item.row <= kQueries && item.rotates()) load_angles(lane, rope, item.dim, angles[i]);
    }
    Values values;
    poll(lane, f, rows, tag, values);
    if constexpr (kQkNorm != kNoNorm) norm(lane, f, rows, tag, values);
#pragma unroll
    for (int i = 0; i < kItems; i++) {
      const HeadItem item = Rows::item(lane, i, rows);
      if (!item.valid) continue;
      u8* first = shared + kScratchOffset + targets[i];
      // Fragments have the same order, so where partners are whole fragments apart, so are their places.
      u8* second = HeadItem::kWhole ? first + kHeadHalf / 16 * (item.row < kQueries ? 512 : Kv::kFragmentBytes)
                                    : shared + kScratchOffset + target(item, item.dim + item.partner());
      if (item.row > kQueries) {
        keep_value(first, values[i][0]);
        keep_value(second, values[i][1]);
        continue;
      }
      if (rope) rotate(values[i], angles[i]);
      if (item.row == kQueries) {
        keep_key(first, values[i][0]);
        keep_key(second, values[i][1]);
      } else {
        keep_query(first, values[i][0]);
        keep_query(second, values[i][1]);
      }
    }
  }

  static __device__ __forceinline__ void load_angles(
      const ComputeLane& lane, int rope, u32 dim, float2 (&angles)[kRun]) {
    const float2* source = lane.params.rope + (((rope - 1) * kMaxSeq + lane.pos()) * kHeadHalf + dim);
    if constexpr (kRun == 1) {
      angles[0] = __ldg(source);
    } else {
      const float4 both = __ldg(reinterpret_cast<const float4*>(source));
      angles[0] = make_float2(both.x, both.y);
      angles[1] = make_float2(both.z, both.w);
    }
  }

  static __device__ __forceinline__ void rotate(float (&values)[2][kRun], const float2 (&angles)[kRun]) {
#pragma unroll
    for (int r = 0; r < kRun; r++) {
      const float a = values[0][r], b = values[1][r];
      values[0][r] = a * angles[r].x - b * angles[r].y;
      values[1][r] = b * angles[r].x + a * angles[r].y;
    }
  }

  // RMSNorm of the q and k rows: weights as they lie in the mailbox, or the same for all heads (q's, then k's).
  static __device__ __forceinline__ void norm(
      ComputeLane& lane, const Fields& f, int rows, u32 tag, Values& values) {
    const QkNorm<kQkNorm, kQueries> norms(lane, lane.params.packets + f.qkv, rows, tag, values);
    const float* weights = lane.params.biases + f.norm;
#pragma unroll
    for (int i = 0; i < kItems; i++) {
      const HeadItem item = Rows::item(lane, i, rows);
      if (!item.valid || item.row > kQueries) continue;
      const bool is_key = item.row == kQueries;
      const float* w = weights + (kQkNorm == kPerHead ? is_key * kHeadDim : f.row(item.row) - f.qkv) + item.dim;
      const float scale = norms.scale(item.row, is_key);
#pragma unroll
      for (int r = 0; r < kRun; r++) {
        values[i][0][r] *= scale * __ldg(w + r);
        values[i][1][r] *= scale * __ldg(w + item.partner() + r);
      }
    }
  }

  static __device__ __forceinline__ void poll(ComputeLane& lane, const Fields& f, int rows, u32 tag, Values& values) {
    const TraceWait traced(lane.trace);
    u64 packets[kItems][2][kRun];
#pragma unroll
    for (int i = 0; i < kItems; i++) {
#pragma unroll
      for (int r = 0; r < kRun; r++) packets[i][0][r] = packets[i][1][r] = static_cast<u64>(tag) << 32;
    }
    Spin spin;
    for (;;) {
      bool all = true;
#pragma unroll
      for (int i = 0; i < kItems; i++) {
        const HeadItem item = Rows::item(lane, i, rows);
        const u64* source = lane.params.packets + (static_cast<u32>(f.row(item.row)) + item.dim);
        if (item.valid) {
          load_run(source, packets[i][0]);
          load_run(source + item.partner(), packets[i][1]);
        }
#pragma unroll
        for (int r = 0; r < kRun; r++) all &= arrived(packets[i][0][r], tag) & arrived(packets[i][1][r], tag);
      }
      if (all) break;
      spin.again(lane);
    }
#pragma unroll
    for (int i = 0; i < kItems; i++) {
#pragma unroll
      for (int r = 0; r < kRun; r++) {
        values[i][0][r] = value_of(packets[i][0][r]);
        values[i][1][r] = value_of(packets[i][1][r]);
      }
    }
  }

  static __device__ __forceinline__ void load_run(const u64* source, u64 (&packets)[kRun]) {
    if constexpr (kRun == 1)
      packets[0] = load_packet(source);
    else
      load_packet_pair(source, packets[0], packets[1]);
  }

  // Where a dim of a row goes in the scratch region.
  static __device__ __forceinline__ u32 target(const HeadItem& item, u32 dim) {
    if (item.row == kQueries) return new_key(dim);
    if (item.row > kQueries) return new_value(dim);
    return dim / 16 * 512 + (item.row * 4 + dim % 8 / 2) * 16 + dim % 16 / 8 * 8 + dim % 2 * 2;
  }

  static __device__ __forceinline__ void keep_key(u8* target, const float (&values)[kRun]) {
    if constexpr (kRun == 1)
      *reinterpret_cast<Kv::Element*>(target) = Kv::element(values[0]);
    else
      Kv::store_pair(target, values[0], values[1]);
  }

  // What is beside a value in its register is of position 1, and masked.
  static __device__ __forceinline__ void keep_value(u8* target, const float (&values)[kRun]) {
#pragma unroll
    for (int r = 0; r < kRun; r++) Kv::store_pair(target + r * kNewValueStride, values[r], 0.f);
  }

  // Elements of the A fragment: high halves in the query's row, low halves 8 rows on, which is the next register.
  static __device__ __forceinline__ void keep_query(u8* target, const float (&values)[kRun]) {
    uint2 word;
    split_pair<Kv::Mma>(values[0] * kScoreScale, kRun == 1 ? 0.f : values[kRun - 1] * kScoreScale, word.x, word.y);
    if constexpr (kRun == 1) {
      reinterpret_cast<unsigned short*>(target)[0] = static_cast<unsigned short>(word.x);
      reinterpret_cast<unsigned short*>(target)[2] = static_cast<unsigned short>(word.y);
    } else {
      *reinterpret_cast<uint2*>(target) = word;
    }
  }

  // The cached blocks, out of the ring, then in the last split the new row as a block of one position.
  static __device__ __forceinline__ void attend_blocks(
      ComputeLane& lane, const Split& split, int window, Softmax& state) {
    const int rows = split.end - split.begin, cached = split.blocks(), blocks = cached + split.last;
    int block = worker(lane);
#pragma unroll 1
    for (int first = 0; first < blocks; first += kKvBlocksPerSlot) {
      if (first < cached) wait(lane, full_barrier(lane.next.slot), lane.next.parity);
      const u8* slot = ring_slot(lane.next.slot);
#pragma unroll 1
      for (; block < min(first + kKvBlocksPerSlot, blocks); block += kWorkers) {
        const u8* keys = slot + (block - first) * kKvBlockBytes + lane.thread * 16;
        const u8* values = keys + kHeadSteps * Kv::kFragmentBytes;
        int visible = rows - block * kKvBlock;
        if (block == cached) {
          keys = new_row() + lane.thread % 4 * 16;
          values = new_row() + kNewValueOffset + lane.thread / 4 * kNewValueStride;
          visible = 1;
        }
        const int skip = window ? window_first(lane.pos(), window) - split.begin - block * kKvBlock : 0;
        attend_block(
            state, lane.thread, share(lane), block < kWorkers, skip, visible, keys,
            values + share(lane) * Kv::kFragmentBytes);
      }
      if (first < cached) lane.release_ring_slot();
    }
  }

  static __device__ __forceinline__ void leave_partial(ComputeLane& lane, Softmax& state) {
    float sum = state.sum;
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    constexpr int kLastShare = (kValueShares - 1) * kValueSteps * 16;
    const int query = lane.thread / 4, begin = share(lane) * 16 + lane.thread % 4 * 2;
    if (query >= kQueries) return;
    float* row = Left::output(worker(lane), query) + begin;
#pragma unroll
    for (int i = 0; i < 2 * kValueSteps; i++) {
      const float* output = state.output[i];
      if (kLastShare + i * 8 + 8 <= kHeadDim || begin + i * 8 < kHeadDim)
        *reinterpret_cast<float2*>(row + i * 8) = make_float2(output[0] + output[2], output[1] + output[3]);
    }
    if (begin == 0) {
      Left::tops(query)[worker(lane)] = state.top;
      Left::sums(query)[worker(lane)] = sum;
    }
  }

  // Merges the warps' partial results in order; normalised where there is only this split.
  static __device__ __forceinline__ void publish(
      ComputeLane& lane, const Fields& f, bool only, int index, int window) {
    constexpr int kDims = kQueries * kHeadDim > kComputeThreads ? 2 : 1;
    const u32 tag = lane.tag(f.phase);
    for_mine<kQueries * kHeadDim / kDims>(lane, [&](u32 mine) {
      const u32 i = mine * kDims, query = i / kHeadDim, dim = i % kHeadDim;
      // With a window a split may have no rows: then its weight is 0.
      Merged<kDims> m(Left{}, query, dim, window ? kLowest : -infinity());
      const u32 partial = f.partial + (index * kHeads + query) * kPartialWords;
      publish_dims(lane.params.packets + (only ? f.output + i : partial + dim), m, only, tag);
      if (!only && dim == 0) publish_pair(lane.params.packets + (partial + kHeadDim), m.top, m.sum, tag);
    });
  }
  using Left = Partials<kWorkers, kQueries>;

  template <int kDims>
  static __device__ __forceinline__ void publish_dims(u64* target, const Merged<kDims>& m, bool normalised, u32 tag) {
    float values[kDims];
#pragma unroll
    for (int i = 0; i < kDims; i++) values[i] = normalised ? __fdividef(m.output[i], m.sum) : m.output[i];
    if constexpr (kDims == 1)
      publish_packet(target, values[0], tag);
    else
      publish_pair(target, values[0], values[1], tag);
  }
};

}  // namespace amk
