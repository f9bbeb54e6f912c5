// bf16 and fp16 as bit patterns.
#pragma once

#include <cmath>
#include <cstring>

#include "runtime.h"

namespace emu {

inline float as_float(u32 bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline u32 as_bits(float value) {
  u32 bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline float from_bf16(u32 bits) { return as_float(bits << 16); }

// Rounded to nearest even; NaN is 0x7fff, as PTX has it.
inline u32 to_bf16(float value) {
  if (std::isnan(value)) return 0x7fff;
  const u32 bits = as_bits(value);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline float from_fp16(u32 bits) {
  const u32 sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
  if (exponent == 31) return as_float(sign | 0x7f800000 | mantissa << 13);
  if (exponent) return as_float(sign | (exponent + 112) << 23 | mantissa << 13);
  const float small = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -small : small;
}

inline u32 to_fp16(float value) {
  if (std::isnan(value)) return 0x7fff;
  const u32 sign = as_bits(value) >> 16 & 0x8000;
  const float size = std::fabs(value);
  if (size >= 65520.f) return sign | 0x7c00;
  if (size < 0x1p-14f) return sign | static_cast<u32>(std::nearbyint(size * 0x1p24f));
  const u32 bits = as_bits(size);
  return sign | ((bits + 0xfff + (bits >> 13 & 1)) >> 13) - (112 << 10);
}

}  // namespace emu
