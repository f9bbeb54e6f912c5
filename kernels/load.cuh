// Loading: a row-major matrix into the SMs' tapes, and weights from a seed. amk/tape.py and amk/model/random_weights.py
// do the same on the host, bit for bit.
#pragma once

#include "ptx.cuh"

namespace amk {

// MurmurHash3's 32-bit finaliser.
__device__ __forceinline__ u32 fmix32(u32 x) {
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x *= 0xC2B2AE35u;
  return x ^ (x >> 16);
}

__device__ __forceinline__ u32 hash_element(u32 key, u64 index) {
  const u32 low = static_cast<u32>(index), high = static_cast<u32>(index >> 32);
  return fmix32(fmix32(low ^ key) + high * 0x9E3779B1u);
}

// A sum of four bytes, centred, times `step`: close to normal, exact until the one rounding.
__device__ __forceinline__ float random_value(u32 key, u64 index, float step) {
  const u32 h = hash_element(key, index);
  const int sum = (h & 255) + ((h >> 8) & 255) + ((h >> 16) & 255) + (h >> 24);
  return __fmul_rn(static_cast<float>(sum - 510), step);
}

}  // namespace amk

// out[i] = bf16 of element i of a random tensor with `count` elements.
extern "C" __global__ void amk_random(unsigned short* out, amk::u64 count, unsigned key, float step) {
  const amk::u64 stride = static_cast<amk::u64>(gridDim.x) * blockDim.x;
  for (amk::u64 i = static_cast<amk::u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    out[i] = static_cast<unsigned short>(amk::Bf16::pack(amk::random_value(key, i, step), 0.f));
}

// One warp packs one atom of one unit: blockIdx.x the unit, blockIdx.y and the warp the atom. `unit_rows` is 16, or 8: then
// rows 8-15 of an atom are rows 0-7 again, `atoms` k-steps further on.
// rows[unit * unit_rows + r]: source row of packed row r, or -1 where it is another tensor's or padding (left as it is).
extern "C" __global__ void amk_repack(
    const unsigned short* source, amk::u8* tape, const amk::u64* unit_offsets, const int* rows, int atoms,
    int unit_rows, int column_begin, int column_end, int source_columns) {
  const int index = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
  if (index >= atoms) return;
  unsigned short* atom = reinterpret_cast<unsigned short*>(tape + unit_offsets[blockIdx.x] + index * 512ull);
  for (int r = 0; r < 4; r++) {
    const int tile_row = lane / 4 + 8 * (r % 2);
    const int row = rows[blockIdx.x * unit_rows + tile_row % unit_rows], kstep = index + tile_row / unit_rows * atoms;
    if (row < 0) continue;
    for (int half = 0; half < 2; half++) {
      const int column = column_begin + kstep * 16 + (lane % 4) * 2 + 8 * (r / 2) + half;
      const amk::u64 element = static_cast<amk::u64>(row) * source_columns + column;
      atom[lane * 8 + r * 2 + half] = column < column_end ? source[element] : 0;
    }
  }
}
