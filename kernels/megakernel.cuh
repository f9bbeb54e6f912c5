// The persistent kernel: every warp runs its lane's task queue, token after token.
// `Program` is generated: stream / compute / epilogue dispatch an opcode to the op variants that the schedule uses.
#pragma once

#include "activation.cuh"
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

// Runs records [begin, end); the next record is on its way while one executes. False: the launch has ended.
template <typename LaneT, typename Dispatch>
__device__ __forceinline__ bool run_records(LaneT& lane, int begin, int end, Dispatch&& dispatch) {
  const int4* record = lane.params.records + static_cast<u64>(begin) * 3;
  int4 next = begin < end ? fetch_record(record) : int4{};
#pragma unroll 1
  for (int i = begin; i < end; i++, record += 3) {
    const Task task{next, record};
    if (i + 1 < end) next = fetch_record(record + 3);
    lane.record = i;
    lane.forget_thread();
    inject_delay(lane);
    lane.trace.begin_task();
    if (!dispatch(task)) return false;
    lane.trace.end_task(i, lane.step);
  }
  return true;
}

// Records of this step: the body, and where logits are needed the head, which follows it in the table.
template <typename LaneT, typename Dispatch>
__device__ __forceinline__ bool run_step(LaneT& lane, int step, Dispatch&& dispatch) {
  const int4 range = __ldg(lane.params.ranges + blockIdx.x * 3 + lane.role);
  lane.step = step;
  return run_records(lane, range.x, step >= lane.params.head_from ? range.w : range.y, dispatch);
}

template <typename Program>
__device__ __forceinline__ void run_stream(const Params& params) {
  StreamLane lane(params);
  lane.trace.open(params, kStream, lane.thread == 0);
  for (int step = 0; step < params.steps; step++)
    if (!run_step(lane, step, [&](const Task& task) { return lane.run(Program::stream(lane, task)); })) break;
  lane.drain();
}

template <typename Program>
__device__ __forceinline__ void run_epilogue(const Params& params) {
  EpilogueLane lane(params);
  lane.trace.open(params, kEpilogue, lane.thread == 0);
  for (int step = 0; step < params.steps; step++) {
    lane.read_control();
    if (!run_step(lane, step, [&](const Task& task) { return Program::epilogue(lane, task); })) break;
  }
}

template <typename Program>
__device__ __forceinline__ void run_compute(const Params& params) {
  ComputeLane lane(params);
  lane.trace.open(params, kCompute, threadIdx.x == 0);
  lane.token = __ldg(params.given);
  int step = 0;
  while (step < params.steps && !lane.stop) {
    run_step(lane, step, [&](const Task& task) {
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
