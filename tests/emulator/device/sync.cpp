// Waiting for each other: lanes of a warp, threads of a block, mbarriers.
#include "machine.h"

namespace emu {

static void complete_meeting(Warp& warp) {
  for (u32 lane = 0; lane < 32; lane++)
    if (warp.arrived >> lane & 1) wake(warp.lanes[lane]);
  warp.arrived = 0;
  warp.generation++;
}

void leave_meeting(Warp& warp) {
  if (warp.arrived && (warp.mask & warp.alive) == warp.arrived) complete_meeting(warp);
}

static Thread& running() {
  if (!machine.current) fail("only a cooperative launch may wait or communicate");
  return *machine.current;
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

void block_barrier(u32 id, u32 threads) {
  Thread& thread = running();
  NamedBarrier& barrier = thread.sm->barriers[id & 15];
  if (!threads) threads = thread.sm->threads_alive;
  if (barrier.count && barrier.threads != threads) fail("barrier %u with %u and %u threads", id, barrier.threads, threads);
  barrier.threads = threads;
  if (++barrier.count < threads) {
    barrier.waiting.push_back(&thread);
    block_thread();
    return;
  }
  barrier.count = 0;
  for (Thread* waiting : barrier.waiting) wake(waiting);
  barrier.waiting.clear();
}

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
  barrier.valid = true;
}

static void arrive(Sm& sm, u32 address, u32 expected_bytes) {
  Mbarrier& barrier = mbarrier_at(sm, address);
  if (!barrier.pending) fail("more arrivals than the mbarrier at shared address %u expects", address);
  barrier.bytes += expected_bytes;
  barrier.pending--;
  barrier.check();
}

void mbarrier_arrive(u32 address, u32 expected_bytes) { arrive(*running().sm, address, expected_bytes); }

bool mbarrier_done(u32 address, u32 parity) {
  const bool done = (mbarrier_at(*running().sm, address).phase & 1) != parity;
  if (done)
    looked();
  else
    yield();
  return done;
}

// --- copies ---

constexpr u8 kOnItsWay = 0xff;  // what a target holds until its copy lands: NaN in every type
constexpr u32 kLongest = 48;    // rounds of 64 clocks

u32 shared_address_of(const void* pointer) {
  const auto offset = static_cast<const u8*>(pointer) - shared_memory;
  if (offset < 0 || offset >= static_cast<long long>(machine.shared_bytes)) fail("not a shared-memory address");
  return static_cast<u32>(offset) + 1024;  // as on a GPU, the first bytes are taken
}

static u8* pointer_in(Sm& sm, u32 address, u32 bytes) {
  if (address < 1024 || address - 1024 + bytes > machine.shared_bytes)
    fail("%u bytes at shared address %u, which has %u", bytes, address - 1024, machine.shared_bytes);
  return sm.shared + (address - 1024);
}

u8* shared_pointer(u32 address, u32 bytes) { return pointer_in(*running().sm, address, bytes); }

static void issue(Sm& sm, Landing landing) {
  const u32 rounds = machine.random(4) ? machine.random(4) : machine.random(kLongest);
  landing.due = machine.clocks + 64ll * rounds;
  const bool early = machine.random(2);
  for (const auto& [target, source] : landing.pieces) {
    if (early) landing.early.insert(landing.early.end(), source, source + landing.piece_bytes);
    std::fill_n(pointer_in(sm, target, landing.piece_bytes), landing.piece_bytes, kOnItsWay);
  }
  sm.landings.push_back(std::move(landing));
}

static void check_copy(u32 target, const u8* source, u32 bytes) {
  if (target % 16 || reinterpret_cast<std::uintptr_t>(source) % 16 || bytes % 16)
    fail("a copy of %u bytes to shared address %u is not aligned", bytes, target);
}

void copy_bulk(u32 target, const u8* source, u32 bytes, u32 barrier) {
  check_copy(target, source, bytes);
  Landing landing;
  landing.pieces = {{target, source}};
  landing.piece_bytes = bytes;
  landing.barrier = barrier;
  landing.bulk = true;
  issue(*running().sm, std::move(landing));
}

void copy_async(u32 target, const u8* source, u32 bytes) {
  check_copy(target, source, bytes);
  std::fill_n(shared_pointer(target, bytes), bytes, kOnItsWay);
  running().pieces.emplace_back(target, source);
}

void copy_async_arrive(u32 barrier) {
  Thread& thread = running();
  Landing landing;
  landing.pieces = std::move(thread.pieces);
  landing.piece_bytes = 16;
  landing.barrier = barrier;
  thread.pieces.clear();
  issue(*thread.sm, std::move(landing));
}

static void finish(Sm& sm, const Landing& landing) {
  const u8* early = landing.early.empty() ? nullptr : landing.early.data();
  for (const auto& [target, source] : landing.pieces) {
    std::copy_n(early ? early : source, landing.piece_bytes, pointer_in(sm, target, landing.piece_bytes));
    if (early) early += landing.piece_bytes;
  }
  auto found = sm.mbarriers.find(landing.barrier);
  if (found == sm.mbarriers.end() || (!landing.bulk && !found->second.pending)) {
    machine.error = "a copy landed that no mbarrier expects";
    machine.state = kFailed;
    return;
  }
  if (landing.bulk)
    found->second.bytes -= static_cast<long long>(landing.piece_bytes);
  else
    found->second.pending--;
  found->second.check();
}

bool land(Sm& sm) {
  std::vector<Landing> later;
  std::vector<Landing> all;
  all.swap(sm.landings);
  for (Landing& landing : all) {
    if (landing.due <= machine.clocks)
      finish(sm, landing);
    else
      later.push_back(std::move(landing));
  }
  sm.landings = std::move(later);
  return !sm.landings.empty();
}

}  // namespace emu
