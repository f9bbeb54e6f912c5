// Grouped-query attention of up to 8 query heads over one split of the cached positions, on tensor cores.
//
// Per block of 16 positions: S = Q K^T with the queries' high halves in rows 0-7 of the mma tile and their low halves
// in rows 8-15 (so S is exact in q), an online softmax per warp (FlashAttention-2, arXiv 2307.08691), then O += P V with
// P split the same way. A C fragment is an A fragment, so P never leaves the registers. Warps take blocks in turn; where
// heads are wide, kValueShares of them take a block together, each with its share of the dims of V.
#pragma once

#include "qk_norm.cuh"

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
