#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace emu {

Fiber::Fiber(std::size_t stack_bytes) : bytes_(stack_bytes) {
  stack_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(stack_, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), PROT_NONE);  // a stack that overflows is noticed
}

Fiber::~Fiber() { munmap(stack_, bytes_); }

void Fiber::restart(void (*entry)()) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = bytes_;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
  started_ = false;
}

void Fiber::resume() {
  if (_setjmp(outside_) != 0) return;
  if (started_) _longjmp(inside_, 1);
  started_ = true;
  setcontext(&context_);
}

void Fiber::pause() {
  if (_setjmp(inside_) == 0) _longjmp(outside_, 1);
}

}  // namespace emu
