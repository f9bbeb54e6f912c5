// What the compiler calls where a kernel dereferences a pointer that is not aligned for its type (-fsanitize=alignment):
// on a GPU such an access traps.
#include <cstdint>

#include "runtime.h"

namespace {

// Of GCC's and Clang's undefined-behaviour sanitizer, version 1.
struct Mismatch {
  const char* file;
  std::uint32_t line, column;
  const void* type;
  std::uint8_t log_alignment, kind;
};

}  // namespace

extern "C" void __ubsan_handle_type_mismatch_v1(const Mismatch* where, std::uintptr_t address) {
  emu::fail("%s:%u: an access at %llx is not aligned to %u bytes", where->file, where->line,
            static_cast<unsigned long long>(address), 1u << where->log_alignment);
}
