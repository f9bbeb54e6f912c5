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
    for (int i = 0; i < 2 * kValueSteps; i++) output[i][0] = output[i][1] = output[i][2] = output[i][3] = 0.f;
  }

  __device__ __forceinline__ void rescale(float top_now) {
    const float factor = exp2_fast(top - top_now);
    top = top_now;
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

// Positions skip .. rows - 1 of a block count (`kSkips`: skip may be above 0). `keys(i)` and `values(i)` yield this
// thread's fragments of dims 16 i .. 16 i + 15, of the values from fragment `share` on.
template <bool kSkips, typename Keys, typename Values>
__device__ __forceinline__ void attend_block(
    Softmax& state, int thread, int share, int skip, int rows, Keys&& keys, Values&& values) {
  const uint4* queries = reinterpret_cast<const uint4*>(shared + kScratchOffset) + thread;
  float scores[2][4] = {};
#pragma unroll kScoreUnroll
  for (int i = 0; i < kHeadSteps; i++) {
    const uint4 q = queries[i * 32];
    const Kv::Fragment k = keys(i);
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
      const bool visible = row < rows && (!kSkips || row >= skip);
      s[n][j] = visible ? score(scores[n][j] + scores[n][j + 2]) : -infinity();
      top = fmaxf(top, s[n][j]);
    }
  }
  top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
  top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
  state.rescale(top);
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
    const Kv::Fragment v = values(share + i);
#pragma unroll
    for (int t = 0; t < Kv::kTerms; t++) {
      Kv::Mma::mma(state.output[2 * i], p, v.term[t].x & low, v.term[t].y & high);
      Kv::Mma::mma(state.output[2 * i + 1], p, v.term[t].z & low, v.term[t].w & high);
    }
  }
}

// kWindow: positions that the layer sees, 0 for all; kRope: table that rotates q and k, from 1, 0 for none.
template <int kQueries, int kWindow, int kRope, int kQkNorm>
struct Attend {
  // Pairs that RoPE rotates (d, d + half), then the dims beyond it in neighbouring pairs.
  static constexpr int kPairs = kHeadDim / 2;
  static constexpr int kHalf = kRotaryDim / 2;

  struct Fields {
    int phase, query, key, value, partial, output, qkv, norm;
  };

  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task) {
    const int index = task.first.y;
    const Split<kWindow> split(lane.pos(), index);
    if (!split.active) return;
    const int4 second = task.second(), third = task.third();
    const Fields f{task.first.w, second.x, second.y, second.z, second.w, third.x, third.y, third.z};
    const int partials = min(kWorkers, (split.end - split.begin + kKvBlock - 1) / kKvBlock + split.last);
    load_queries(lane, f, split.last);
    compute_barrier<kComputeThreads>();
    Softmax state;
    cached_blocks(lane, split, state);
    if (split.last) new_block(lane, split, state);
    if (worker(lane) < partials) leave_partial(lane, state);
    compute_barrier<kComputeThreads>();
    publish(lane, f, split, index, partials);
    compute_barrier<kComputeThreads>();  // the scratch region is free for the next task
  }

 private:
  static __device__ __forceinline__ int worker(const ComputeLane& lane) { return lane.warp / kValueShares; }
  static __device__ __forceinline__ int share(const ComputeLane& lane) { return lane.warp % kValueShares * kValueSteps; }

  static __device__ __forceinline__ int2 pair_dims(int pair) {
    if (pair < kHalf) return make_int2(pair, pair + kHalf);
    return make_int2(2 * pair, 2 * pair + 1);
  }

  // Waits for q (and the new k and v), applies RoPE, leaves Q as A fragments and the new row in the scratch region.
  static __device__ __forceinline__ void load_queries(ComputeLane& lane, const Fields& f, bool last) {
    constexpr int kItems = ((kQueries + 2) * kPairs + kComputeThreads - 1) / kComputeThreads;
    const int count = (kQueries + (last ? 2 : 0)) * kPairs;
    const u32 tag = lane.tag(f.phase);
    const u64* packets = lane.params.packets;
    float2 angle[kItems];
    const u64* source[kItems];
#pragma unroll
    for (int i = 0; i < kItems; i++) {
      const int item = lane.index() + i * kComputeThreads, row = item / kPairs, pair = item % kPairs;
      const int base = row < kQueries ? f.query + row * kHeadDim : row == kQueries ? f.key : f.value;
      source[i] = item < count ? packets + base : nullptr;
      angle[i] = make_float2(1.f, 0.f);
      if (kRope && source[i] && row <= kQueries && pair < kHalf)
        angle[i] = __ldg(lane.params.rope + ((kRope - 1) * kMaxSeq + lane.pos()) * kHalf + pair);
    }
    float values[kItems][2];
    poll_pairs<kItems>(lane, source, tag, values);
    if constexpr (kQkNorm != kNoNorm) norm<kItems>(lane, f, last, count, tag, values);
#pragma unroll
    for (int i = 0; i < kItems; i++) {
      const int item = lane.index() + i * kComputeThreads;
      if (!source[i]) continue;
      float a = values[i][0], b = values[i][1];
      if (kRope) {
        a = values[i][0] * angle[i].x - values[i][1] * angle[i].y;
        b = values[i][1] * angle[i].x + values[i][0] * angle[i].y;
      }
      keep(item / kPairs, pair_dims(item % kPairs), a, b);
    }
  }

  // RMSNorm of the q and k rows: weights as they lie in the mailbox, or the same for all heads (q's, then k's).
  template <int kItems>
  static __device__ __forceinline__ void norm(
      ComputeLane& lane, const Fields& f, bool last, int count, u32 tag, float (&values)[kItems][2]) {
    const QkNorm<kQkNorm, kItems> norms(lane, lane.params.packets + f.qkv, last, count, tag, values);
    const float* weights = lane.params.biases + f.norm;
#pragma unroll
    for (int i = 0; i < kItems; i++) {
      const int item = lane.index() + i * kComputeThreads, row = item / kPairs;
      if (item >= count || row > kQueries) continue;
      const int2 dims = pair_dims(item % kPairs);
      const int head = row < kQueries ? f.query + row * kHeadDim : f.key;
      const float* w = weights + (kQkNorm == kPerHead ? (row == kQueries) * kHeadDim : head - f.qkv);
      const float scale = norms.scale(row, row == kQueries);
      values[i][0] *= scale * __ldg(w + dims.x);
      values[i][1] *= scale * __ldg(w + dims.y);
    }
  }

  template <int kItems>
  static __device__ __forceinline__ void poll_pairs(
      ComputeLane& lane, const u64* const (&source)[kItems], u32 tag, float (&values)[kItems][2]) {
    const TraceWait traced(lane.trace);
    Spin spin;
    for (;;) {
      bool all = true;
#pragma unroll
      for (int i = 0; i < kItems; i++) {
        if (!source[i]) continue;
        const int2 dims = pair_dims((lane.index() + i * kComputeThreads) % kPairs);
        const u64 a = load_packet(source[i] + dims.x), b = load_packet(source[i] + dims.y);
        all &= arrived(a, tag) & arrived(b, tag);
        values[i][0] = value_of(a);
        values[i][1] = value_of(b);
      }
      if (all) return;
      spin.again(lane);
    }
  }

  static __device__ __forceinline__ void keep(int row, int2 dims, float a, float b) {
    if (row >= kQueries) {
      float* target = new_row() + (row - kQueries) * kHeadDimPadded;
      target[dims.x] = Kv::round(a);
      target[dims.y] = Kv::round(b);
      return;
    }
    keep_query(row, dims.x, a * kScoreScale);
    keep_query(row, dims.y, b * kScoreScale);
  }

  // Element (row, dim) of the A fragment: high half in row `row`, low half in row + 8.
  static __device__ __forceinline__ void keep_query(int row, int dim, float value) {
    u32 high, low;
    split_pair<Kv::Mma>(value, 0.f, high, low);
    u8* fragment = shared + kScratchOffset + (dim / 16) * 512 + (row * 4 + (dim & 7) / 2) * 16;
    unsigned short* halves = reinterpret_cast<unsigned short*>(fragment) + ((dim % 16) / 8) * 4 + (dim & 1);
    halves[0] = static_cast<unsigned short>(high);
    halves[2] = static_cast<unsigned short>(low);
  }

  static __device__ __forceinline__ void cached_blocks(ComputeLane& lane, const Split<kWindow>& split, Softmax& state) {
    const int rows = split.end - split.begin;
    const int blocks = (rows + kKvBlock - 1) / kKvBlock;
#pragma unroll 1
    for (int first = 0; first < blocks; first += kKvBlocksPerSlot) {
      const int count = min(kKvBlocksPerSlot, blocks - first);
      wait(lane, full_barrier(lane.next.slot), lane.next.parity);
      const u8* slot = ring_slot(lane.next.slot);
      int block = (worker(lane) + kWorkers - first % kWorkers) % kWorkers;
#pragma unroll 1
      for (; block < count; block += kWorkers) {
        const u8* keys = slot + block * kKvBlockBytes;
        const u8* values = keys + kHeadSteps * Kv::kFragmentBytes;
        const int skip = kWindow ? window_first(lane.pos(), kWindow) - split.begin - (first + block) * kKvBlock : 0;
        attend_block<kWindow != 0>(
            state, lane.thread, share(lane), skip, rows - (first + block) * kKvBlock,
            [&](int i) { return Kv::load(keys + i * Kv::kFragmentBytes, lane.thread); },
            [&](int i) { return Kv::load(values + i * Kv::kFragmentBytes, lane.thread); });
      }
      lane.release_ring_slot();
    }
  }

  // The new row as a block of one position, by the warp whose turn it is.
  static __device__ __forceinline__ void new_block(ComputeLane& lane, const Split<kWindow>& split, Softmax& state) {
    const int blocks = (split.end - split.begin + kKvBlock - 1) / kKvBlock;
    if (worker(lane) != blocks % kWorkers) return;
    const float* key = new_row();
    const float* value = key + kHeadDimPadded;
    const int pair = (lane.thread & 3) * 2, n = lane.thread >> 2;
    attend_block<false>(
        state, lane.thread, share(lane), 0, 1,
        [&](int i) {
          Kv::Fragment fragment = {};
          if (n == 0) {
            Kv::set(fragment, 0, key[i * 16 + pair], key[i * 16 + pair + 1]);
            Kv::set(fragment, 1, key[i * 16 + pair + 8], key[i * 16 + pair + 9]);
          }
          return fragment;
        },
        [&](int i) {
          Kv::Fragment fragment = {};
          if (pair == 0) {
            Kv::set(fragment, 0, value[i * 16 + n], 0.f);
            Kv::set(fragment, 2, value[i * 16 + 8 + n], 0.f);
          }
          return fragment;
        });
  }

  static __device__ __forceinline__ void leave_partial(ComputeLane& lane, Softmax& state) {
    float sum = state.sum;
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const int query = lane.thread >> 2, first = (lane.thread & 3) * 2;
    if (query >= kQueries) return;
    float* row = partial_row(worker(lane), query, kQueries);
    const int begin = share(lane) * 16 + first;
#pragma unroll
    for (int i = 0; i < 2 * kValueSteps; i++) {
#pragma unroll
      for (int j = 0; j < 2; j++)
        if (begin + i * 8 + j < kHeadDim) row[begin + i * 8 + j] = state.output[i][j] + state.output[i][j + 2];
    }
    if (begin == 0) {
      row[kHeadDim] = state.top;
      row[kHeadDim + 1] = sum;
    }
  }

  // Merges the partial results of the warps that had a block, in order; normalised where there is only this split.
  static __device__ __forceinline__ void publish(
      ComputeLane& lane, const Fields& f, const Split<kWindow>& split, int index, int partials) {
    const u32 tag = lane.tag(f.phase);
    for (int i = lane.index(); i < kQueries * kHeadDim; i += kComputeThreads) {
      const int query = i / kHeadDim, dim = i % kHeadDim;
      // With a window a split may have no rows: then its weight is 0.
      const Merged m = Merged::of(Constant<kWorkers>{}, partials, query, kQueries, dim, kWindow ? kLowest : -infinity());
      if (split.only) {
        publish_packet(lane.params.packets + f.output + i, __fdividef(m.output, m.sum), tag);
        continue;
      }
      u64* row = lane.params.packets + f.partial + (index * kHeads + query) * kPartialWords;
      publish_packet(row + dim, m.output, tag);
      if (dim == 0) {
        publish_packet(row + kHeadDim, m.top, tag);
        publish_packet(row + kHeadDim + 1, m.sum, tag);
      }
    }
  }
};

// Row `pos` of the cache, by the task after the last active split, when others no longer wait for this SM. The block that
// it lies in was copied (for the rows before it) by this SM only, and that copy has landed: attend acquired its full
// barrier.
template <int kWindow>
struct Append {
  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task) {
    if (!Split<kWindow>(lane.pos(), task.first.z).last) return;
    append(lane, task.first.y);
    compute_barrier<kComputeThreads>();  // the new row may be overwritten
  }

 private:
  static __device__ __forceinline__ void append(ComputeLane& lane, int kv_head) {
    u8* block = lane.params.kv + kv_block_offset(kv_head, lane.pos() / kKvBlock);
    const int p = lane.pos() % kKvBlock;
    for (int dim = lane.index(); dim < kHeadDimPadded; dim += kComputeThreads) {
      const float key = dim < kHeadDim ? new_row()[dim] : 0.f;
      const float value = dim < kHeadDim ? new_row()[kHeadDimPadded + dim] : 0.f;
      u8* fragment = block + (dim / 16) * Kv::kFragmentBytes;
      Kv::store(fragment, key_word(p, dim), dim & 1, key);
      Kv::store(fragment + kHeadSteps * Kv::kFragmentBytes, value_word(p, dim), p & 1, value);
      if (!isfinite(key) || !isfinite(value)) report_overflow(lane.params.report, kv_head, lane.pos());
    }
    fence_copy_engine();
  }

  static __device__ __noinline__ void report_overflow(Report* report, int kv_head, int pos) {
    if (atomicOr_system(&report->status, kOverflow) & kOverflow) return;
    report->record = kv_head;
    report->step = pos;
  }
};

}  // namespace amk
