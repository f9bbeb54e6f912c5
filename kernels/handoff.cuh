// Hand-offs between SMs: 64-bit packets {fp32 value, 32-bit tag}.
//
// Publish and poll (PTX ISA, Memory Consistency Model): store and load are strong (.relaxed.gpu), 64 bits wide and
// aligned, so single-copy atomic: value and tag cannot tear. They are morally strong with respect to each other, so the
// load reads from some store in the location's coherence order, and eventually from the latest. A load that returns the
// awaited tag has read the awaited value with it; the value needs no other memory, hence no release, acquire or fence.
//
// Overwriting (one slot a mailbox): every reader of the value before must be done. Its read feeds, by data dependence
// through registers, shared memory (ordered by mbarriers at CTA scope) and further packets, a value that the writer
// waited for. Such a cycle of reads from and dependences has no execution in the model (Axiom: No-Thin-Air), so the
// overwriting store cannot become visible to the read it would have come after. That every reader feeds every writer is
// what the validator's rule 4 proves per schedule. Tags are unambiguous because a slot's stale tag is that of the value
// before, at most one token old, and the host clears the mailboxes before tags wrap (rule 10).
#pragma once

#include "lane.cuh"

namespace amk {

__device__ __forceinline__ void publish_packet(u64* packet, float value, u32 tag) {
  store_relaxed(packet, (static_cast<u64>(tag) << 32) | __float_as_uint(value));
}

// Two neighbouring packets (16-byte aligned), each stored as if alone.
__device__ __forceinline__ void publish_pair(u64* packet, float a, float b, u32 tag) {
  const u64 high = static_cast<u64>(tag) << 32;
  store_relaxed_pair(packet, high | __float_as_uint(a), high | __float_as_uint(b));
}

__device__ __forceinline__ u64 load_packet(const u64* packet) { return load_relaxed(packet); }

// Two neighbouring packets (16-byte aligned); each is atomic by itself, which is all a poll needs.
__device__ __forceinline__ void load_packet_pair(const u64* packet, u64& a, u64& b) { load_relaxed_pair(packet, a, b); }

__device__ __forceinline__ bool arrived(u64 packet, u32 tag) { return static_cast<u32>(packet >> 32) == tag; }
__device__ __forceinline__ float value_of(u64 packet) { return __uint_as_float(static_cast<u32>(packet)); }

}  // namespace amk
