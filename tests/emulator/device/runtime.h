// What kernel code calls while it is executed on the host: see runtime.cpp. Every CUDA thread is a fiber; one runs at a
// time, until it waits or polls.
#pragma once

#include <cstdint>
#include <functional>

namespace emu {

using u8 = unsigned char;
using u32 = unsigned int;
using u64 = unsigned long long;

struct Index {
  u32 x = 0, y = 0, z = 0;
};

// Of the running thread; set anew at every switch.
extern Index thread_index, block_index, block_size, grid_size;
extern u8* shared_memory;

// Ends the launch with an error. Does not return to the caller.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void trap();

// Lets other threads run: a poll has failed.
void yield();
// Counts a successful look at memory that others write: too many without a yield are a poll too.
void looked();
// Clocks so far. Yields, unless the thread has yielded since it last asked.
long long clock();

// The lanes of `mask` of the running warp wait for each other, and see what each brought.
enum class Meeting : int { kSync, kShuffle, kVote, kReduce, kMma };
constexpr int kWords = 8;
struct Brought {
  u32 words[kWords];
};
const Brought* meet(Meeting kind, u32 mask, const Brought& mine);
int lane_id();

// `threads` of the block wait for each other at a named barrier; 0 threads: all of the block.
void block_barrier(u32 id, u32 threads);
void block_barrier_arrive(u32 id, u32 threads);  // without waiting

// Shared-memory addresses.
u32 shared_address_of(const void* pointer);
u8* shared_pointer(u32 address, u32 bytes);

// mbarriers, by shared-memory address.
void mbarrier_init(u32 address, u32 arrivals);
void mbarrier_arrive(u32 address, u32 expected_bytes);
bool mbarrier_done(u32 address, u32 parity);

// Copies that land later: a bulk copy reports bytes to its mbarrier, cp.async arrives when those before it have landed.
void copy_bulk(u32 target, const u8* source, u32 bytes, u32 barrier);
void copy_async(u32 target, const u8* source, u32 bytes);
void copy_async_arrive(u32 barrier);

}  // namespace emu
