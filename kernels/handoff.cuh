// Hand-offs between SMs: 64-bit packets {fp32 value, 32-bit tag}.
//
// Why this is sound (PTX memory model): a 64-bit access is single-copy atomic, so value and tag cannot tear; the
// store is relaxed and strong at gpu scope, the poll too, so the poll sees it eventually; the value needs no other
// memory, so no release/acquire is needed. Overwriting a packet needs every reader of the old value to be done;
// readers feed (by data dependence, which cannot be speculated across SMs) something the writer waited for.
#pragma once

#include "lane.cuh"

namespace amk {

__device__ __forceinline__ void publish_packet(u64* packet, float value, u32 tag) {
  const u64 bits = (static_cast<u64>(tag) << 32) | __float_as_uint(value);
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(packet), "l"(bits) : "memory");
}

__device__ __forceinline__ u64 load_packet(const u64* packet) {
  u64 bits;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(bits) : "l"(packet) : "memory");
  return bits;
}

// Two neighbouring packets (16-byte aligned); each is atomic by itself, which is all a poll needs.
__device__ __forceinline__ void load_packet_pair(const u64* packet, u64& a, u64& b) {
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(packet) : "memory");
}

__device__ __forceinline__ bool arrived(u64 packet, u32 tag) { return static_cast<u32>(packet >> 32) == tag; }
__device__ __forceinline__ float value_of(u64 packet) { return __uint_as_float(static_cast<u32>(packet)); }

}  // namespace amk
