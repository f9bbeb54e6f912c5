// A task that brings x, and the unit that is multiplied with it next, as one: the unit's leading chunks are loaded into
// registers while the answers of the first polls are on their way, which shortens the way from x to the product, and
// frees their ring slots sooner, which makes the ring deeper by as much.
//
// Neither task does anything else than alone, but the compute lane acquires ring slots of the second before it has all
// packets of the first. That cannot close a cycle of waits: the first drains no slots, and what fills those of the second
// waits for nothing but slots that earlier tasks, or the second itself, gave back, and for rows of the token before.
#pragma once

#include "gemv.cuh"

namespace amk {

// Units of `kFull` chunks of kChunk k-steps and one of kRest. kUnits has the bits of their opcodes, kResumed and kParked
// those of them that begin with, or leave, sums in an accumulator. `kHalf`: see Gemv.
template <int kChunk, int kRest, int kFull, int kHalf, u64 kUnits, u64 kResumed, u64 kParked>
struct Follower {
  Loaded<kChunk, kRest, kFull> loaded = {};  // zeros: what one path alone sets has registers on all paths of the kernel
  Task unit = {};
  bool taken = false;

  // Takes the next task and loads its unit, if it is one of these.
  __device__ __forceinline__ void take(ComputeLane& lane, OpcodeAhead& ahead) {
    if (!ahead.any() || !has(kUnits, ahead.code)) return;
    unit = ahead.task();
    loaded.load(lane);
    ahead.advance();
    taken = true;
  }

  __device__ __forceinline__ void multiply(ComputeLane& lane, const OpcodeAhead& ahead) const {
    if (!taken) return;
    lane.trace.end_task(lane.record, lane.step);
    lane.record = ahead.index - 1;
    lane.trace.begin_task();
    const bool resumed = kResumed && has(kResumed, unit.opcode()), parked = kParked && has(kParked, unit.opcode());
    Gemv<kChunk, kRest>::run_loaded(lane, unit, kHalf, resumed, parked, loaded);
  }

 private:
  static __device__ __forceinline__ bool has(u64 opcodes, int opcode) { return opcodes >> opcode & 1; }
};

template <typename Source, typename FollowerT>
struct Fed {
  static __device__ __forceinline__ void run(ComputeLane& lane, const Task& task, OpcodeAhead& ahead) {
    FollowerT follower;
    Source::run(lane, task, [&] { follower.take(lane, ahead); });
    follower.multiply(lane, ahead);
  }
};

}  // namespace amk
