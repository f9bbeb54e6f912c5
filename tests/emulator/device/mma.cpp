#include "ptx.h"

namespace emu::ptx {

void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const float (&c)[4], float (*widen)(u32)) {
  const Brought* lanes = meet(Meeting::kMma, ~0u, {{a[0], a[1], a[2], a[3], b[0], b[1]}});
  const int lane = lane_id(), group = lane / 4, pair = lane % 4;
  for (int i = 0; i < 4; i++) {
    // c[i]: row lane / 4 + 8 * (i / 2), column (lane % 4) * 2 + i % 2.
    const int row_half = i / 2, column = pair * 2 + i % 2;
    double sum = c[i];
    for (int j = 0; j < 4; j++) {       // lanes of the row of A, and of the column of B
      for (int half = 0; half < 2; half++) {  // k below 8, and from 8 on
        const u32 left = lanes[group * 4 + j].words[row_half + 2 * half], right = lanes[column * 4 + j].words[4 + half];
        sum += static_cast<double>(widen(left & 0xffff)) * widen(right & 0xffff);
        sum += static_cast<double>(widen(left >> 16)) * widen(right >> 16);
      }
    }
    d[i] = static_cast<float>(sum);
  }
}

}  // namespace emu::ptx
