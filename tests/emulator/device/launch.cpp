// What the host calls: beginning a launch and executing it.
#include <stdexcept>

#include "machine.h"

namespace emu {

constexpr std::size_t kStackBytes = 128 << 10;

static Thread* thread_at(std::size_t i) {
  while (machine.threads.size() <= i) machine.threads.push_back(std::make_unique<Thread>(kStackBytes));
  Thread* thread = machine.threads[i].get();
  thread->polled = thread->fresh = false;
  thread->looks = 0;
  thread->failed = 0;
  thread->pieces.clear();
  thread->fiber.restart(thread_main);
  return thread;
}

static void make_sm(u32 block, u32 threads) {
  machine.sms.push_back(std::make_unique<Sm>());
  Sm& sm = *machine.sms.back();
  sm.block = block;
  sm.threads_alive = threads;
  sm.memory.assign(machine.shared_bytes + kMargin + 1024, kUninitialised);
  const auto address = reinterpret_cast<std::uintptr_t>(sm.memory.data());
  sm.shared = sm.memory.data() + (1024 - address % 1024) % 1024;
  sm.warps.resize(threads / 32);
  for (u32 w = 0; w < threads / 32; w++) {
    Warp& warp = sm.warps[w];
    warp.sm = &sm;
    warp.number = static_cast<int>(w);
    warp.alive = warp.runnable = ~0u;
    for (u32 lane = 0; lane < 32; lane++) {
      Thread* thread = thread_at(block * threads + w * 32 + lane);
      thread->sm = &sm;
      thread->warp = &warp;
      thread->index = w * 32 + lane;
      warp.lanes.push_back(thread);
    }
    machine.order.push_back(&warp);
  }
}

}  // namespace emu

#define EMU_API extern "C" __attribute__((visibility("default")))

using Bind = void (*)(void**, std::function<void()>*);

// Begins a cooperative launch of `blocks` blocks; emu_run executes it.
EMU_API void emu_start(Bind bind, void** arguments, emu::u32 blocks, emu::u32 threads, emu::u32 shared, emu::u64 seed) {
  using namespace emu;
  machine.sms.clear();
  machine.order.clear();
  machine.shared_bytes = shared;
  machine.random_state = seed * 0x9e3779b97f4a7c15ull + 1;
  machine.clocks = 1000;
  machine.error.clear();
  machine.state = kRunning;
  bind(arguments, &machine.kernel);
  grid_size = {blocks, 1, 1};
  block_size = {threads, 1, 1};
  block_index = thread_index = {};
  for (u32 block = 0; block < blocks; block++) make_sm(block, threads);
}

// Up to `rounds` rounds; the state afterwards.
EMU_API int emu_run(int rounds) {
  using namespace emu;
  for (int i = 0; i < rounds && machine.state == kRunning; i++) run_round();
  return machine.state;
}

// A whole plain launch, one thread after another: nothing in it may wait. 0, or 1 with an error.
EMU_API int emu_call(Bind bind, void** arguments, const emu::u32* grid, emu::u32 threads) {
  using namespace emu;
  std::function<void()> kernel;
  bind(arguments, &kernel);
  grid_size = {grid[0], grid[1], grid[2]};
  block_size = {threads, 1, 1};
  machine.current = nullptr;
  try {
    for (block_index.z = 0; block_index.z < grid[2]; block_index.z++)
      for (block_index.y = 0; block_index.y < grid[1]; block_index.y++)
        for (block_index.x = 0; block_index.x < grid[0]; block_index.x++)
          for (thread_index.x = 0; thread_index.x < threads; thread_index.x++) kernel();
  } catch (const std::runtime_error&) {
    return 1;
  }
  block_index = {};
  return 0;
}

EMU_API const char* emu_error() { return emu::machine.error.c_str(); }
EMU_API long long emu_clocks() { return emu::machine.clocks; }
