// How fast this GPU can be read: every SM copies a contiguous stream of its own into shared memory with the copy
// engine that the decode kernel uses, and looks at nothing. The includer brings copy_bulk.cuh or copy_async.cuh.
#include "load.cuh"

namespace amk {

constexpr int kBarrierBytes = 512;  // room for the slots' barriers, before the slots

__device__ __forceinline__ void await_slot(u32 barrier, u32 parity) {
  while (!mbarrier_try(barrier, parity)) {
  }
}

}  // namespace amk

// One warp per SM. `chunk` is a multiple of 16 bytes, `stream` of `chunk`; at most 64 slots, no more than copies.
extern "C" __global__ void amk_ceiling(const amk::u8* streams, amk::u64 stream, int chunk, int slots, int rounds) {
  using namespace amk;
  extern __shared__ __align__(128) u8 memory[];
  const u32 landed = shared_address(memory), first_slot = landed + kBarrierBytes;  // a barrier is 8 bytes
  const int thread = threadIdx.x;
  if (thread == 0) {
    for (int slot = 0; slot < slots; slot++) mbarrier_init(landed + 8 * slot, kCopyArrivals);
    fence_copy_engine();
  }
  __syncwarp();
  const u64 policy = evict_first_policy();
  const u8* source = streams + blockIdx.x * stream;
  const int chunks = static_cast<int>(stream / chunk), copies = chunks * rounds;
  int slot = 0;
  u32 parity = 1;  // of the copy before in the slot; the first pass over the slots waits for nothing
  for (int i = 0; i < copies; i++) {
    if (i >= slots) await_slot(landed + 8 * slot, parity);
    const u64 offset = static_cast<u64>(i % chunks) * chunk;
    if (kCopyArrivals > 1 || thread == 0)
      copy_to_shared(first_slot + slot * chunk, source + offset, chunk, landed + 8 * slot, policy, thread);
    if (++slot == slots) {
      slot = 0;
      parity ^= 1;
    }
  }
  for (int i = 0; i < slots; i++) {  // shared memory must not be given back before the copies land
    await_slot(landed + 8 * slot, parity);
    if (++slot == slots) {
      slot = 0;
      parity ^= 1;
    }
  }
}

// Pairs of random values with unit variance, close to normal. `kind`: 0 fp16, 1 bf16, 2 fp32.
extern "C" __global__ void amk_fill(amk::u32* out, amk::u64 pairs, unsigned key, int kind) {
  const amk::u64 stride = static_cast<amk::u64>(gridDim.x) * blockDim.x;
  const float step = 1.f / 147.8f;
  for (amk::u64 i = static_cast<amk::u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < pairs; i += stride) {
    const float a = amk::random_value(key, 2 * i, step), b = amk::random_value(key, 2 * i + 1, step);
    if (kind == 2) {
      out[2 * i] = __float_as_uint(a);
      out[2 * i + 1] = __float_as_uint(b);
    } else {
      out[i] = kind == 0 ? amk::Fp16::pack(a, b) : amk::Bf16::pack(a, b);
    }
  }
}
