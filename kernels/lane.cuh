// State that every lane has, its task records, and the watchdog that bounds every wait.
#pragma once

#include "params.cuh"
#include "trace.cuh"

namespace amk {

constexpr int kComputeThreads = kComputeWarps * 32;
constexpr int kThreads = kComputeThreads + 64;  // then the stream warp, then the epilogue warp

extern __shared__ __align__(128) u8 shared[];

// Lane state follows the ring's barriers: this flag, the lanes' ranges of records, then what Sample chooses from.
__device__ __forceinline__ volatile int* quit_flag() {
  return reinterpret_cast<volatile int*>(shared + kBarriersOffset + 16 * kRingStages);
}

// [lanes] body begin, body end, head begin, head end. Here because it is looked at once a token, and would take registers.
__device__ __forceinline__ int4* record_ranges() {
  return reinterpret_cast<int4*>(shared + kBarriersOffset + 16 * kRingStages + 16);
}

// A device-table record: the opcode and the op's fields. Words from 4 on are fetched where they are used. Word 0 may be
// there before the others, see Ahead.
struct Task {
  int4 first;
  const int4* record;
  int code;
  __device__ int opcode() const { return code; }
  __device__ __forceinline__ int4 second() const { return words(record + 1); }
  __device__ __forceinline__ int4 third() const { return words(record + 2); }

  // Read again where they are used again: registers are scarcer.
  static __device__ __forceinline__ int4 words(const int4* address) { return load_constant(address); }
};

constexpr int kRecordsAhead = 4;  // how far records are prefetched: the tables of a large model do not stay in L2

// The records after the task that runs. Of the first of them the words of Task::first are fetched a task ahead of their
// use. The compute lane, which looks at the next opcode earlier than that, fetches the opcode alone, and the other words
// come out of L1 then: words that go through a merge of two paths may be waited for there.
template <bool kWhole>
struct Ahead {
  const Params& params;
  int index, last;
  int code = 0;
  int4 first = {};

  __device__ __forceinline__ Ahead(const Params& p, int begin, int end) : params(p), index(begin), last(end) { fetch(); }
  __device__ __forceinline__ bool any() const { return index < last; }
  __device__ __forceinline__ Task task() const {
    if constexpr (kWhole) return Task{first, record(), first.x};
    return Task{load_constant(record()), record(), code};
  }
  __device__ __forceinline__ void advance() {
    index++;
    fetch();
  }

 private:
  __device__ __forceinline__ const int4* record() const { return params.records + static_cast<u64>(index) * 3; }
  __device__ __forceinline__ void fetch() {
    if constexpr (kWhole)
      load_constant_if(any(), record(), first);
    else
      load_constant_if(any(), record(), code);
    if (any()) prefetch_l1(record() + 3 * kRecordsAhead);
  }
};
using OpcodeAhead = Ahead<false>;
using RecordAhead = Ahead<true>;

struct LaneState {
  const Params& params;
  Lane role;
  int thread;  // in the warp
  int step = 0;
  int record = 0;
  mutable Trace trace;

  // Makes the compiler derive addresses from `thread` anew for every task: it would keep those of all ops in registers
  // for the whole kernel otherwise, and spill.
  __device__ __forceinline__ void forget_thread() { asm volatile("" : "+r"(thread)); }

  __device__ LaneState(const Params& p, Lane r) : params(p), role(r), thread(threadIdx.x & 31) {}

  // Recomputed where needed: registers are scarcer than additions.
  __device__ __forceinline__ int pos() const {
    const int pos = params.start_pos + step;
    __builtin_assume(pos >= 0);  // so divisions by powers of two are shifts
    return pos;
  }

  // Equality with the tag proves arrival: the value before in the same packet had another phase or epoch.
  __device__ __forceinline__ u32 tag(int phase) const { return (params.epoch + step) * kPhases + phase; }
};

// A wait took longer than any schedule can explain: say where, and trap. By value: a reference that escapes would keep
// the lane's state in local memory.
__device__ __noinline__ void hang(Report* report, int lane, int record, int step) {
  if (atomicCAS_system(&report->status, kRunning, kHang) == kRunning) {
    report->sm = blockIdx.x;
    report->lane = lane;
    report->record = record;
    report->step = step;
  }
  __threadfence_system();
  __trap();
}

// How long a wait may last: the limit times 2 to this power. Where something is stuck all lanes end up waiting: the one that is
// nearest to the cause must report first. A compute lane's barrier waits for its own SM, its packets for others, and the
// other lanes for the compute lane.
enum Patience : int { kOwnSm = 0, kOtherSms = 1, kComputeLane = 2 };

// Bounds one wait. In units of 1024 clocks: 32 bits of them are enough for half an hour.
struct Spin {
  u32 since = 0;
  __device__ __forceinline__ void again(const LaneState& lane, Patience patience = kOtherSms) {
    const u32 now = static_cast<u32>(clock64() >> 10) | 1;
    if (since == 0) since = now;
    if (now - since > lane.params.wait_limit << patience) hang(lane.params.report, lane.role, lane.record, lane.step);
  }
};

// A row of floats in shared memory, 16 bytes at a time.
template <int kCount>
__device__ __forceinline__ void load_row(const float* row, float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(row + i);
    values[i] = four.x;
    if (i + 1 < kCount) values[i + 1] = four.y;
    if (i + 2 < kCount) values[i + 2] = four.z;
    if (i + 3 < kCount) values[i + 3] = four.w;
  }
}

__device__ __forceinline__ void wait(LaneState& lane, u32 barrier, u32 parity) {
  const TraceWait traced(lane.trace);
  Spin spin;
  while (!mbarrier_try(barrier, parity)) spin.again(lane, lane.role == kCompute ? kOwnSm : kComputeLane);
}

}  // namespace amk
