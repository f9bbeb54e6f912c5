// Thin wrappers over the PTX that the kernel is made of, one instruction each (PTX ISA section in brackets).
#pragma once

namespace amk {

using u32 = unsigned int;
using u64 = unsigned long long;
using u8 = unsigned char;

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// --- mbarrier [Parallel Synchronization: mbarrier] ---

__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Release at CTA scope: what this thread did before is visible to whoever sees the phase complete.
__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}

// Acquire at CTA scope when true. `parity` is that of the phase waited for; `barrier` a shared-memory address.
__device__ __forceinline__ bool mbarrier_test(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done;
}

#if AMK_BULK_COPY
// As mbarrier_test, but the hardware may suspend the thread for a while first.
__device__ __forceinline__ bool mbarrier_try(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done;
}
#else
__device__ __forceinline__ bool mbarrier_try(u32 barrier, u32 parity) { return mbarrier_test(barrier, parity); }
#endif

// --- loads and stores [Memory Consistency Model; ld, ld.global.nc, prefetch] ---

// Strong and at gpu scope; 64 bits at once.
__device__ __forceinline__ void store_relaxed(u64* address, u64 bits) {
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(address), "l"(bits) : "memory");
}
// Two neighbours (16-byte aligned), each at once.
__device__ __forceinline__ void store_relaxed_pair(u64* address, u64 a, u64 b) {
  asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(address), "l"(a), "l"(b) : "memory");
}
__device__ __forceinline__ u64 load_relaxed(const u64* address) {
  u64 bits;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(bits) : "l"(address) : "memory");
  return bits;
}
// Two neighbours (16-byte aligned), each at once.
__device__ __forceinline__ void load_relaxed_pair(const u64* address, u64& a, u64& b) {
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(address) : "memory");
}

// Constant data, where the load must stay where it is written.
__device__ __forceinline__ int4 load_constant(const int4* address) {
  int4 w;
  asm volatile("ld.global.nc.v4.s32 {%0, %1, %2, %3}, [%4];" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "l"(address));
  return w;
}
// Into the same register, whatever becomes of the condition: a compiler that merges the old word and the new one itself
// may copy the new one right behind the load, and so wait for it.
__device__ __forceinline__ void load_constant_if(bool condition, const int4* address, int& word) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n@p ld.global.nc.s32 %0, [%1];\n}"
               : "+r"(word) : "l"(address), "r"(static_cast<int>(condition)));
}
__device__ __forceinline__ void load_constant_if(bool condition, const int4* address, int4& w) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n@p ld.global.nc.v4.s32 {%0, %1, %2, %3}, [%4];\n}"
               : "+r"(w.x), "+r"(w.y), "+r"(w.z), "+r"(w.w) : "l"(address), "r"(static_cast<int>(condition)));
}
__device__ __forceinline__ void prefetch_l1(const void* address) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
}

__device__ __forceinline__ void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// --- fences [Memory Consistency Model] ---

__device__ __forceinline__ void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Orders generic-proxy accesses against those of the copy engine. Nothing to order where copies are cp.async.
__device__ __forceinline__ void fence_copy_engine() {
#if AMK_BULK_COPY
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

// 2^x; denormal results are zero.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// e^x; denormal results are zero.
__device__ __forceinline__ float exp_fast(float x) { return exp2_fast(x * 1.44269504f); }

// 1 / sqrt(x); denormals are zero.
__device__ __forceinline__ float rsqrt_fast(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Barrier of the compute warps only; id 0 is __syncthreads.
template <int kThreads>
__device__ __forceinline__ void compute_barrier() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

// Barriers that some warps arrive at without waiting, and others wait at: these see what those wrote before. By whole
// warps; kThreads counts both kinds.
template <int kThreads>
__device__ __forceinline__ void arrive_at_barrier(int id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ __forceinline__ void wait_at_barrier(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

// --- tensor cores [mma.m16n8k16] ---

struct Bf16 {
  static constexpr u32 kInfinity = 0x7f80;  // the exponent of infinities and NaNs
  static __device__ __forceinline__ void mma(float (&c)[4], const uint4& a, u32 b0, u32 b1) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
  }
  // Two floats as packed bf16, `low` in the low half, rounded to nearest even.
  static __device__ __forceinline__ u32 pack(float low, float high) {
    u32 packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
  static __device__ __forceinline__ float low(u32 packed) { return __uint_as_float(packed << 16); }
  static __device__ __forceinline__ float high(u32 packed) { return __uint_as_float(packed & 0xffff0000u); }
};

struct Fp16 {
  static constexpr u32 kInfinity = 0x7c00;
  static __device__ __forceinline__ void mma(float (&c)[4], const uint4& a, u32 b0, u32 b1) {
    asm(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ u32 pack(float low, float high) {
    u32 packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
  static __device__ __forceinline__ float low(u32 packed) { return widen(packed & 0xffffu); }
  static __device__ __forceinline__ float high(u32 packed) { return widen(packed >> 16); }

 private:
  static __device__ __forceinline__ float widen(u32 bits) {
    float value;
    asm("{\n.reg .b16 h;\ncvt.u16.u32 h, %1;\ncvt.f32.f16 %0, h;\n}" : "=f"(value) : "r"(bits));
    return value;
  }
};

// A pair of floats as packed high parts and packed remainders: together 16 (bf16) or 22 (fp16) bits of mantissa.
template <typename T>
__device__ __forceinline__ void split_pair(float a, float b, u32& high, u32& low) {
  high = T::pack(a, b);
  low = T::pack(a - T::low(high), b - T::high(high));
}

}  // namespace amk
