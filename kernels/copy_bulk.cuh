// Copy engine of sm_90 and later: one thread issues bulk copies that complete on the slot's full barrier.
#pragma once

#define AMK_BULK_COPY 1
#include "ptx.cuh"

namespace amk {

constexpr int kCopyArrivals = 1;

// Weights are read once per token: let them leave the L2 first.
__device__ __forceinline__ u64 evict_first_policy() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Called by one thread (shared-memory addresses). `bytes` is a multiple of 16, both addresses are 16-byte aligned.
__device__ __forceinline__ void copy_to_shared(u32 target, const u8* source, u32 bytes, u32 full, u64 policy, int) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full), "r"(bytes) : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
      ::"r"(target), "l"(source), "r"(bytes), "r"(full), "l"(policy) : "memory");
}

// `bytes` from `source` on into L2, by one thread.
__device__ __forceinline__ void prefetch_to_l2(const u8* source, u32 bytes, u64 policy) {
  asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(source), "r"(bytes), "l"(policy)
               : "memory");
}

}  // namespace amk
