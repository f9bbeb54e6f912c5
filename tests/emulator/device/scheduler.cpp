// Who runs next: warps in an order, and for a time, drawn from the seed, so that each seed is another interleaving.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "machine.h"

namespace emu {

constexpr long long kClocksPerRound = 64;
constexpr int kRoundsPerSpeed = 256;
constexpr u32 kMaxPasses = 16;
constexpr int kLooksUntilYield = 256;
constexpr u32 kPollRounds = 8;  // between two polls of a thread, at most

Machine machine;
Index thread_index, block_index, block_size, grid_size;
u8* shared_memory;

u32 Machine::random(u32 below) {
  random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<u32>((random_state >> 33) % below);
}

// --- what a thread calls ---

[[noreturn]] static void stop_here() {
  machine.state = kFailed;
  if (!machine.current) throw std::runtime_error(machine.error);
  for (;;) machine.current->fiber.pause();
}

void fail(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  char where[64] = "";
  if (machine.current)
    std::snprintf(where, sizeof where, "SM %u, thread %u: ", machine.current->sm->block, machine.current->index);
  machine.error = std::string(where) + text;
  stop_here();
}

void trap() {
  machine.error = "the kernel trapped";
  stop_here();
}

void sleep(long long until) {
  Thread& thread = running();
  Warp& warp = *thread.warp;
  const u32 bit = 1u << (thread.index & 31);
  thread.wakes = until;
  warp.wakes = warp.asleep ? std::min(warp.wakes, until) : until;
  warp.asleep |= bit;
  warp.runnable &= ~bit;
  thread.polled = thread.fresh = true;
  thread.looks = 0;
  thread.fiber.pause();
}

void yield() { sleep(machine.clocks + kClocksPerRound * machine.random(kPollRounds)); }

void looked() {
  if (++running().looks > kLooksUntilYield) yield();
}

long long clock() {
  Thread& thread = running();
  if (!thread.fresh) yield();
  thread.fresh = false;
  return machine.clocks;
}

void block_thread() {
  Thread& thread = running();
  thread.warp->runnable &= ~(1u << (thread.index & 31));
  thread.polled = false;
  thread.fiber.pause();
}

void wake(Thread* thread) {
  const u32 bit = 1u << (thread->index & 31);
  thread->warp->runnable |= bit;
  thread->warp->asleep &= ~bit;
}

void thread_main() {
  machine.kernel();
  Thread& thread = *machine.current;
  Warp& warp = *thread.warp;
  const u32 bit = 1u << (thread.index & 31);
  warp.alive &= ~bit;
  warp.runnable &= ~bit;
  thread.sm->threads_alive--;
  thread.polled = false;
  leave_meeting(warp);
  for (;;) thread.fiber.pause();
}

// --- turns ---

static void enter(Thread& thread) {
  machine.current = &thread;
  thread_index.x = thread.index;
  block_index.x = thread.sm->block;
  shared_memory = thread.sm->shared;
  thread.fiber.resume();
  machine.current = nullptr;
}

// One pass over the lanes that can run. False: all of them only polled.
static bool run_lanes(Warp& warp) {
  const u32 first = machine.random(32);
  bool progress = false;
  for (u32 i = 0; i < 32 && machine.state == kRunning; i++) {
    const u32 lane = (first + i) & 31;
    if (!(warp.runnable >> lane & 1)) continue;
    enter(*warp.lanes[lane]);
    progress |= !warp.lanes[lane]->polled;
  }
  return progress;
}

static void wake_sleepers(Warp& warp) {
  if (!warp.asleep || warp.wakes > machine.clocks) return;
  warp.wakes = INT64_MAX;
  for (u32 left = warp.asleep; left; left &= left - 1) {
    Thread* thread = warp.lanes[__builtin_ctz(left)];
    if (thread->wakes <= machine.clocks)
      wake(thread);
    else
      warp.wakes = std::min<long long>(warp.wakes, thread->wakes);
  }
}

static void turn(Warp& warp) {
  wake_sleepers(warp);
  const u32 passes = 1 + machine.random(kMaxPasses);
  for (u32 pass = 0; pass < passes && warp.runnable && machine.state == kRunning; pass++)
    if (!run_lanes(warp)) return;
}

// For a while some warps are slow, and so is the memory of some SMs. In half of these times all compute warps are.
static void draw_speeds() {
  constexpr u32 kSkips[] = {0, 0, 4, 7}, kLatencies[] = {1, 2, 8};
  for (const auto& sm : machine.sms) {
    sm->latency = kLatencies[machine.random(3)];
    const u32 floor = machine.random(2) ? 0 : machine.random(8);
    for (Warp& warp : sm->warps) {
      const bool computes = &warp < &sm->warps.back() - 1;  // the last two are the stream and the epilogue warp
      warp.skips = std::max(kSkips[machine.random(4)], computes ? floor : 0);
    }
  }
}

static void shuffle_order() {
  for (std::size_t i = machine.order.size(); i > 1; i--)
    std::swap(machine.order[i - 1], machine.order[machine.random(static_cast<u32>(i))]);
}

static bool margins_intact() {
  for (const auto& sm : machine.sms)
    for (u32 i = 0; i < kMargin; i++)
      if (sm->shared[machine.shared_bytes + i] != kUninitialised) {
        machine.error = "SM " + std::to_string(sm->block) + " wrote behind its shared memory, at byte " +
                        std::to_string(machine.shared_bytes + i);
        return false;
      }
  return true;
}

static std::string stuck() {
  static const char* const kNames[] = {"__syncwarp", "a shuffle", "a vote", "a reduction", "an mma"};
  std::string text = "all threads wait for each other:";
  int named = 0;
  for (const auto& sm : machine.sms)
    for (const Warp& warp : sm->warps) {
      if (!warp.alive || ++named > 6) continue;
      char line[128];
      const bool meets = warp.arrived != 0;
      std::snprintf(line, sizeof line, " SM %u warp %d (%s %08x of %08x)", sm->block, warp.number,
                    meets ? kNames[static_cast<int>(warp.kind)] : "a block barrier,", warp.arrived, warp.alive);
      text += line;
    }
  return text;
}

static void end_round(bool landing) {
  u32 alive = 0, runnable = 0;
  for (const Warp* warp : machine.order) {
    alive |= warp->alive;
    runnable |= warp->runnable | warp->asleep;
  }
  if (machine.state != kRunning || runnable || landing) return;
  machine.state = alive ? kFailed : kDone;
  if (alive) machine.error = stuck();
  if (machine.state == kDone && !margins_intact()) machine.state = kFailed;
}

void run_round() {
  if (machine.clocks / kClocksPerRound % kRoundsPerSpeed == 0) draw_speeds();
  shuffle_order();
  for (Warp* warp : machine.order)
    if (machine.state == kRunning && machine.random(8) >= warp->skips) turn(*warp);
  machine.clocks += kClocksPerRound;
  bool landing = false;
  for (const auto& sm : machine.sms) landing |= land(*sm);
  end_round(landing);
}

}  // namespace emu
