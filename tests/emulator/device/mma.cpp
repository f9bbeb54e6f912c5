// mma.m16n8k16 by the fragment layout of the PTX ISA. Products are exact in double, and each sum is rounded once.
#include "ptx.h"

namespace emu::ptx {

struct Rows {
  double k[16];
};

// k = 0 .. 15 of a row of A or a column of B, which four lanes hold: k below 8 in their word `low`, the rest in `high`.
template <float (*kWiden)(u32)>
static Rows gathered(const Brought* lanes, int low, int high) {
  Rows row;
  for (int j = 0; j < 4; j++) {
    const u32 words[] = {lanes[j].words[low], lanes[j].words[high]};
    for (int half = 0; half < 2; half++) {
      row.k[half * 8 + j * 2] = kWiden(words[half] & 0xffff);
      row.k[half * 8 + j * 2 + 1] = kWiden(words[half] >> 16);
    }
  }
  return row;
}

static float product(float c, const Rows& a, const Rows& b) {
  double sum = c;
  for (int k = 0; k < 16; k++) sum += a.k[k] * b.k[k];
  return static_cast<float>(sum);
}

// d[i]: row lane / 4 + 8 * (i / 2), column (lane % 4) * 2 + i % 2. Words of a lane: four of A, then two of B.
template <float (*kWiden)(u32)>
static void mma(float (&d)[4], const Brought& mine, const float (&c)[4]) {
  const Brought* lanes = meet(Meeting::kMma, ~0u, mine);
  const int row = lane_id() / 4 * 4, column = lane_id() % 4 * 8;
  const Rows a[] = {gathered<kWiden>(lanes + row, 0, 2), gathered<kWiden>(lanes + row, 1, 3)};
  const Rows b[] = {gathered<kWiden>(lanes + column, 4, 5), gathered<kWiden>(lanes + column + 4, 4, 5)};
  for (int i = 0; i < 4; i++) d[i] = product(c[i], a[i / 2], b[i % 2]);
}

#define EMU_MMA_BODY(widen)                                              \
  {                                                                      \
    float d[4];                                                          \
    mma<widen>(d, {{a0, a1, a2, a3, b0, b1}}, {c0, c1, c2, c3});         \
    d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];                          \
  }
EMU_MMA(mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32) EMU_MMA_BODY(from_bf16)
EMU_MMA(mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32) EMU_MMA_BODY(from_fp16)

}  // namespace emu::ptx
