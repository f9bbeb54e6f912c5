// Waiting for each other: lanes of a warp, threads of a block, mbarriers.
#include <algorithm>

#include "machine.h"

namespace emu {

constexpr long long kPatience = 64;  // rounds after which a failed poll of an mbarrier says so

static void complete_meeting(Warp& warp) {
  for (u32 lane = 0; lane < 32; lane++)
    if (warp.arrived >> lane & 1) wake(warp.lanes[lane]);
  warp.arrived = 0;
  warp.generation++;
}

void leave_meeting(Warp& warp) {
  if (warp.arrived && (warp.mask & warp.alive) == warp.arrived) complete_meeting(warp);
}

int lane_id() { return static_cast<int>(running().index & 31); }

const Brought* meet(Meeting kind, u32 mask, const Brought& mine) {
  Thread& thread = running();
  Warp& warp = *thread.warp;
  const u32 lane = thread.index & 31;
  if (!(mask >> lane & 1)) fail("a thread meets others with a mask (%08x) that it is not in", mask);
  if (warp.arrived && (warp.kind != kind || warp.mask != mask))
    fail("lanes of warp %d meet in different instructions", warp.number);
  warp.kind = kind;
  warp.mask = mask;
  warp.arrived |= 1u << lane;
  Brought* all = warp.brought[warp.generation & 1];
  all[lane] = mine;
  if (warp.arrived == (mask & warp.alive))
    complete_meeting(warp);
  else
    block_thread();
  return all;
}

// Whether this arrival is the last one of the barrier, which then begins anew.
static bool arrive_at(NamedBarrier& barrier, u32 id, u32 threads) {
  if (barrier.count && barrier.threads != threads)
    fail("barrier %u with %u and %u threads", id, barrier.threads, threads);
  barrier.threads = threads;
  if (++barrier.count < threads) return false;
  barrier.count = 0;
  for (Thread* waiting : barrier.waiting) wake(waiting);
  barrier.waiting.clear();
  return true;
}

void block_barrier(u32 id, u32 threads) {
  Thread& thread = running();
  NamedBarrier& barrier = thread.sm->barriers[id & 15];
  if (arrive_at(barrier, id, threads ? threads : thread.sm->threads_alive)) return;
  barrier.waiting.push_back(&thread);
  block_thread();
}

void block_barrier_arrive(u32 id, u32 threads) { arrive_at(running().sm->barriers[id & 15], id, threads); }

static Mbarrier& mbarrier_at(Sm& sm, u32 address) {
  auto found = sm.mbarriers.find(address);
  if (found == sm.mbarriers.end()) fail("no mbarrier was initialised at shared address %u", address);
  return found->second;
}

void mbarrier_init(u32 address, u32 arrivals) {
  if (address % 8) fail("an mbarrier at shared address %u", address);
  shared_pointer(address, 8);
  Mbarrier& barrier = running().sm->mbarriers[address];
  barrier = Mbarrier{};
  barrier.expected = barrier.pending = arrivals;
}

static void arrive(Sm& sm, u32 address, u32 expected_bytes) {
  Mbarrier& barrier = mbarrier_at(sm, address);
  if (!barrier.pending) fail("more arrivals than the mbarrier at shared address %u expects", address);
  barrier.bytes += expected_bytes;
  barrier.pending--;
  barrier.check();
}

void mbarrier_arrive(u32 address, u32 expected_bytes) { arrive(*running().sm, address, expected_bytes); }

void Mbarrier::check() {
  if (pending || bytes) return;
  phase ^= 1;
  pending = expected;
  for (Thread* thread : sleepers) wake(thread);
  sleepers.clear();
}

// One look may be a question. Who looks again waits, and may be told late: when something happens, or after a while.
bool mbarrier_done(u32 address, u32 parity) {
  Thread& thread = running();
  Mbarrier& barrier = mbarrier_at(*thread.sm, address);
  const bool again = thread.failed == (address | parity);
  thread.failed = barrier.phase == parity ? address | parity : 0;
  looked();
  if (barrier.phase != parity) return true;
  if (!again) return false;
  barrier.sleepers.push_back(&thread);
  sleep(machine.clocks + 64 * kPatience);
  auto& sleepers = barrier.sleepers;
  sleepers.erase(std::remove(sleepers.begin(), sleepers.end(), &thread), sleepers.end());
  return false;
}

}  // namespace emu
