// The emulated GPU: SMs of warps of lanes, their barriers, and copies on their way.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fiber.h"
#include "runtime.h"

namespace emu {

struct Sm;
struct Warp;

constexpr u32 kMargin = 4096;        // bytes behind shared memory that nothing may write
constexpr u8 kUninitialised = 0xff;  // NaN in every type, and no tag

struct Thread {
  explicit Thread(std::size_t stack_bytes) : fiber(stack_bytes) {}
  Fiber fiber;
  Sm* sm = nullptr;
  Warp* warp = nullptr;
  u32 index = 0;           // threadIdx.x
  bool polled = false;     // it paused because a poll failed, not because it waits
  long long wakes = 0;     // the clock at which it polls again
  bool fresh = false;      // it has yielded since it last asked for the clock
  int looks = 0;           // since it last yielded
  u32 failed = 0;          // the mbarrier and parity of its last poll, if that failed
  std::vector<std::pair<u32, const u8*>> pieces;  // cp.async since the last deferred arrival: 16 bytes each
};

struct Warp {
  Sm* sm = nullptr;
  int number = 0;
  std::vector<Thread*> lanes;
  u32 alive = 0, runnable = 0, asleep = 0;  // asleep: a poll failed, and the next one is later
  long long wakes = 0;                      // the first of those that sleep
  // The meeting that lanes wait in.
  Meeting kind = Meeting::kSync;
  u32 mask = 0, arrived = 0, generation = 0;
  Brought brought[2][32];  // a lane may be a meeting ahead of those that still read
  u32 skips = 0;           // of 8 turns, how many it misses
};

struct Mbarrier {
  u32 expected = 0, pending = 0, phase = 0;
  long long bytes = 0;
  std::vector<Thread*> sleepers;  // their polls failed
  void check();
};

struct NamedBarrier {
  u32 count = 0, threads = 0;
  std::vector<Thread*> waiting;
};

// A copy on its way. Its source is read when it is issued or when it lands, by a draw: either may happen.
struct Landing {
  long long due = 0;
  std::vector<std::pair<u32, const u8*>> pieces;
  u32 piece_bytes = 0;
  std::vector<u8> early;  // what was read when it was issued, if it was
  u32 barrier = 0;
  bool bulk = false;
};

struct Sm {
  u32 block = 0;
  std::vector<u8> memory;  // shared, with a margin behind it
  u8* shared = nullptr;
  std::vector<Warp> warps;
  std::map<u32, Mbarrier> mbarriers;
  NamedBarrier barriers[16];
  std::vector<Landing> landings;
  u32 threads_alive = 0;
  u32 latency = 1;  // copies land within so many rounds, most of them
};

enum State : int { kIdle = -1, kRunning = 0, kDone = 1, kFailed = 2 };

struct Machine {
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<std::unique_ptr<Sm>> sms;
  std::vector<Warp*> order;
  std::function<void()> kernel;
  Thread* current = nullptr;
  long long clocks = 0;
  u32 shared_bytes = 0;
  u64 random_state = 0;
  State state = kIdle;
  std::string error;

  u32 random(u32 below);
};

extern Machine machine;

inline Thread& running() {
  if (!machine.current) fail("only a cooperative launch may wait or communicate");
  return *machine.current;
}

void thread_main();    // what a fiber executes
void run_round();      // a turn for every warp

void block_thread();   // the running thread waits until somebody wakes it
void wake(Thread* thread);
void sleep(long long until);  // the running thread polls again at that clock, or when somebody wakes it
void leave_meeting(Warp& warp);  // a lane has exited
bool land(Sm& sm);     // what is due; whether anything is still on its way

}  // namespace emu
