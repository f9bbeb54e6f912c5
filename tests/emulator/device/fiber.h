// Switching stacks: ucontext starts a fiber, setjmp and longjmp switch (no system call).
#pragma once

#include <csetjmp>
#include <cstddef>
#include <ucontext.h>

namespace emu {

class Fiber {
 public:
  explicit Fiber(std::size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next resume() calls `entry`, which must never return.
  void restart(void (*entry)());
  // Runs this fiber until it pauses.
  void resume();
  // Back to who resumed it; called by the fiber itself.
  void pause();

 private:
  std::size_t bytes_;
  void* stack_;
  bool started_ = false;
  ucontext_t context_;
  std::jmp_buf inside_, outside_;
};

}  // namespace emu
