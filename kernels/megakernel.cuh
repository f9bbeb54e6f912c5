// The persistent kernel: every warp runs its lane's task queue, token after token.
// `Program` is generated: stream / compute / epilogue dispatch an opcode to the op variants that the schedule uses.
#pragma once

#include "activation.cuh"
#include "append.cuh"
#include "attend.cuh"
#include "combine.cuh"
#include "delay.cuh"
#include "epilogue.cuh"
#include "gemv.cuh"
#include "post_norm.cuh"
#include "sample.cuh"
#include "stream.cuh"

namespace amk {

constexpr int kRecordsAhead = 4;  // how far records are prefetched: the tables of a large model do not stay in L2

// Issued a task ahead of its use.
__device__ __forceinline__ int4 fetch_record(const int4* record) {
  const int4 words = load_constant(record);
  prefetch_l1(record + 3 * kRecordsAhead);
  return words;
}

// What a lane does for every token: the records of the body, and where logits are needed those of the head, which follow
// in the table. (Fetching the next token's first record with this token's last task cost 15 to 20 us a token, measured.)
struct Records {
  int begin, body_end, end;
  const int4* first;

  __device__ __forceinline__ explicit Records(const LaneState& lane) {
    const int4 range = __ldg(lane.params.ranges + blockIdx.x * 3 + lane.role);
    begin = range.x;
    body_end = range.y;
    end = range.w;
    first = lane.params.records + static_cast<u64>(begin) * 3;
  }

  // The records of a step. False: the launch has ended.
  template <typename LaneT, typename Dispatch>
  __device__ __forceinline__ bool run(LaneT& lane, int step, Dispatch&& dispatch) {
    lane.step = step;
    const int last = step >= lane.params.head_from ? end : body_end;
    const int4* record = first;
    int4 next = begin < last ? fetch_record(record) : int4{};
#pragma unroll 1
    for (int i = begin; i < last; i++) {
      const Task task{next, record};
      record += 3;
      if (i + 1 < last) next = fetch_record(record);
      lane.record = i;
      lane.forget_thread();
      inject_delay(lane);
      lane.trace.begin_task();
      if (!dispatch(task)) return false;
      lane.trace.end_task(i, lane.step);
    }
    return true;
  }
};

template <typename Program>
__device__ __forceinline__ void run_stream(const Params& params) {
  StreamLane lane(params);
  lane.trace.open(params, kStream, lane.thread == 0);
  Records records(lane);
  for (int step = 0; step < params.steps; step++)
    if (!records.run(lane, step, [&](const Task& task) { return Program::stream(lane, task); })) break;
  lane.drain();
}

template <typename Program>
__device__ __forceinline__ void run_epilogue(const Params& params) {
  EpilogueLane lane(params);
  lane.trace.open(params, kEpilogue, lane.thread == 0);
  Records records(lane);
  for (int step = 0; step < params.steps; step++) {
    lane.read_control();
    if (!records.run(lane, step, [&](const Task& task) { return Program::epilogue(lane, task); })) break;
  }
}

template <typename Program>
__device__ __forceinline__ void run_compute(const Params& params) {
  ComputeLane lane(params);
  lane.trace.open(params, kCompute, threadIdx.x == 0);
  lane.token = __ldg(params.given);
  Records records(lane);
  int step = 0;
  while (step < params.steps && !lane.stop) {
    records.run(lane, step, [&](const Task& task) {
      Program::compute(lane, task);
      return true;
    });
    if (++step < params.given_count) lane.token = __ldg(params.given + step);
  }
  if (threadIdx.x != 0) return;
  if (step < params.steps) *quit_flag() = 1;
  if (blockIdx.x == 0) params.report->steps_done = step;
}

template <typename Program>
__device__ __forceinline__ void run_megakernel(const Params& params) {
  if (threadIdx.x == 0) init_barriers();
  // Padding of Q and of the new row stays zero for good: head dims beyond head_dim are never written again.
  for (int i = threadIdx.x; i < kHeadSteps * 128; i += kThreads) reinterpret_cast<u32*>(shared + kScratchOffset)[i] = 0;
  for (int i = threadIdx.x; i < kNewRowBytes / 4; i += kThreads) reinterpret_cast<u32*>(new_row())[i] = 0;
  __syncthreads();
  const int warp = threadIdx.x >> 5;
  if (warp < kComputeWarps)
    run_compute<Program>(params);
  else if (warp == kComputeWarps)
    run_stream<Program>(params);
  else
    run_epilogue<Program>(params);
}

}  // namespace amk
