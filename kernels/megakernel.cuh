// The persistent kernel: every warp runs its lane's task queue, token after token.
// `Program` is generated: stream / compute / epilogue dispatch an opcode to the op variants that the schedule uses.
#pragma once

#include "activation.cuh"
#include "append.cuh"
#include "attend.cuh"
#include "combine.cuh"
#include "delay.cuh"
#include "epilogue.cuh"
#include "fed.cuh"
#include "gemv.cuh"
#include "post_norm.cuh"
#include "sample.cuh"
#include "stream.cuh"

namespace amk {

// What a lane does for a token: the records of the body, and where logits are needed those of the head, which follow in
// the table. False: the launch has ended. (Fetching the next token's first record with this token's last task cost 15 to
// 20 us a token, measured.)
template <typename LaneT, typename Dispatch>
__device__ __forceinline__ bool run_records(LaneT& lane, int step, Dispatch&& dispatch) {
  lane.step = step;
  const int4 range = record_ranges()[lane.role];
  typename LaneT::AheadT ahead(lane.params, range.x, step >= lane.params.head_from ? range.w : range.y);
#pragma unroll 1
  while (ahead.any()) {
    const Task task = ahead.task();
    lane.record = ahead.index;
    ahead.advance();
    lane.forget_thread();
    inject_delay(lane);
    lane.trace.begin_task();
    if (!dispatch(task, ahead)) return false;
    lane.trace.end_task(lane.record, lane.step);
  }
  return true;
}

template <typename Program>
__device__ __forceinline__ void run_stream(const Params& params) {
  StreamLane lane(params);
  lane.trace.open(params, kStream, lane.thread == 0);
  for (int step = 0; step < params.steps; step++)
    if (!run_records(lane, step, [&](const Task& task, const auto&) { return Program::stream(lane, task); })) break;
  lane.drain();
}

template <typename Program>
__device__ __forceinline__ void run_epilogue(const Params& params) {
  EpilogueLane lane(params);
  lane.trace.open(params, kEpilogue, lane.thread == 0);
  for (int step = 0; step < params.steps; step++) {
    lane.read_control();
    if (!run_records(lane, step, [&](const Task& task, const auto&) { return Program::epilogue(lane, task); })) break;
  }
}

// Ends the other lanes: the stream lane looks at the flag, the epilogue lane too, once its next slot is full.
__device__ __forceinline__ void quit(ComputeLane& lane) {
  wait(lane, reduce_empty(lane.reduce.slot), lane.reduce.parity ^ 1);
  if (threadIdx.x == 0) *quit_flag() = 1;
  __syncwarp();
  arrive_at_barrier<kReduceBarrierThreads>(reduce_full(lane.reduce.slot));
}

template <typename Program>
__device__ __forceinline__ void run_compute(const Params& params) {
  ComputeLane lane(params);
  lane.trace.open(params, kCompute, threadIdx.x == 0);
  lane.token = __ldg(params.given);
  int step = 0;
  while (step < params.steps && !lane.stop) {
    run_records(lane, step, [&](const Task& task, OpcodeAhead& ahead) {
      Program::compute(lane, task, ahead);
      return true;
    });
    if (++step < params.given_count) lane.token = __ldg(params.given + step);
  }
  if (step < params.steps) quit(lane);
  if (blockIdx.x == 0 && threadIdx.x == 0) params.report->steps_done = step;
}

template <typename Program>
__device__ __forceinline__ void run_megakernel(const Params& params) {
  if (threadIdx.x == 0) init_barriers();
  if (threadIdx.x < 3) record_ranges()[threadIdx.x] = __ldg(params.ranges + blockIdx.x * 3 + threadIdx.x);
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
