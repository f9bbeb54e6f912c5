// The timeline instrument: with AMK_TRACE every task leaves {record and step, begin, begin + waited, end} in SM clocks.
// Without it everything here is empty and compiles to nothing.
#pragma once

#include "params.cuh"

namespace amk {

#if AMK_TRACE
struct Trace {
  long long* events = nullptr;  // of this lane; null for all threads but the lane's first
  long long begin = 0, waited = 0;
  int count = 0, waiting = 0;

  // Layout: [sm][lane][kTraceEvents + 1][4]; the first event holds the clock and the global timer at the start.
  __device__ void open(const Params& params, int lane, bool speaker) {
    if (!speaker || !params.trace) return;
    events = params.trace + (blockIdx.x * 3ll + lane) * (kTraceEvents + 1) * 4;
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    events[0] = clock64();
    events[1] = now;
  }
  __device__ void begin_task() {
    begin = clock64();
    waited = 0;
  }
  __device__ void end_task(int record, int step) {
    if (!events || count == kTraceEvents) return;
    long long* event = events + 4 * ++count;
    event[0] = (static_cast<long long>(step) << 32) | record;
    event[1] = begin;
    event[2] = begin + waited;
    event[3] = clock64();
    events[2] = count;
  }
};

// One within another counts once.
struct TraceWait {
  Trace& trace;
  long long since;
  __device__ explicit TraceWait(Trace& t) : trace(t), since(clock64()) { trace.waiting++; }
  __device__ ~TraceWait() {
    if (--trace.waiting == 0) trace.waited += clock64() - since;
  }
};
#else
struct Trace {
  __device__ __forceinline__ void open(const Params&, int, bool) {}
  __device__ __forceinline__ void begin_task() {}
  __device__ __forceinline__ void end_task(int, int) {}
};
struct TraceWait {
  __device__ __forceinline__ explicit TraceWait(Trace&) {}
};
#endif

}  // namespace amk
