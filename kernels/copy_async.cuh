// Copies on sm_80, sm_86 and sm_89: every thread of the stream warp issues 16-byte cp.async, and each thread's
// arrival on the slot's full barrier is deferred until its copies have landed.
#pragma once

#define AMK_BULK_COPY 0
#include "ptx.cuh"

namespace amk {

constexpr int kCopyArrivals = 32;

__device__ __forceinline__ u64 evict_first_policy() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Called by all threads of the stream warp (shared-memory addresses). `bytes` is a multiple of 16, both addresses are 16-byte aligned.
__device__ __forceinline__ void copy_to_shared(u32 target, const u8* source, u32 bytes, u32 full, u64 policy, int thread) {
  for (u32 offset = thread * 16; offset < bytes; offset += 32 * 16) {
    asm volatile(
        "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
        ::"r"(target + offset), "l"(source + offset), "l"(policy) : "memory");
  }
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(full) : "memory");
}

__device__ __forceinline__ void prefetch_to_l2(const u8* source, u32 bytes, u64) {
  for (u32 i = 0; i < bytes; i += 128) prefetch_l2(source + i);
}

}  // namespace amk
