// Injected delays: with AMK_DELAYS every warp waits before each of its tasks, by a draw of its own: mostly not at all,
// often a little, now and then for microseconds. Results must not depend on it. Without AMK_DELAYS this is nothing.
#pragma once

#include "lane.cuh"

namespace amk {

#if AMK_DELAYS
constexpr int kShortDelay = 256;  // clocks, exclusive
constexpr int kLongDelay = 8192;  // clocks, exclusive: about four microseconds

// fmix32 of MurmurHash3.
__device__ __forceinline__ u32 scramble(u32 x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

// Clocks to wait: 5 in 8 none, 2 in 8 short, 1 in 8 long. The warp names SM and lane; records are numbered over the
// whole table and epochs over all launches, so that a second run of the same tokens waits elsewhere.
__device__ __forceinline__ int delay_of(const LaneState& lane) {
  const u32 warp = blockIdx.x * (kThreads / 32) + (threadIdx.x >> 5);
  u32 draw = scramble(kDelaySeed ^ warp);
  draw = scramble(draw ^ static_cast<u32>(lane.record));
  draw = scramble(draw ^ (lane.params.epoch + lane.step));
  const u32 kind = draw & 7, clocks = draw >> 3;
  return kind < 5 ? 0 : static_cast<int>(clocks % (kind < 7 ? kShortDelay : kLongDelay));
}

// All threads of a warp draw the same number, and none goes on before the others.
__device__ __forceinline__ void inject_delay(const LaneState& lane) {
  const int clocks = delay_of(lane);
  const long long begin = clock64();
  while (clock64() - begin < clocks) {
  }
  __syncwarp();
}
#else
__device__ __forceinline__ void inject_delay(const LaneState&) {}
#endif

}  // namespace amk
