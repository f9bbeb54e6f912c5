// Shared memory, and the copies into it that land later: each after some rounds of its own, in any order.
#include <algorithm>

#include "machine.h"

namespace emu {

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
  const u32 rounds = machine.random(16) ? machine.random(sm.latency) : machine.random(kLongest);
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
