// What the host hands to a launch. amk/runtime/cuda/params.py mirrors this struct field by field.
#pragma once

#include "ptx.cuh"

namespace amk {

enum Lane : int { kStream = 0, kCompute = 1, kEpilogue = 2 };
enum Status : int { kRunning = 0, kHang = 1, kNotFinite = 2, kOverflow = 4 };

// Written by the kernel into pinned host memory.
struct Report {
  int status;    // OR of Status
  int sm, lane, record, step;  // where it hung; for kOverflow: record = kv_head row, step = position
  int steps_done;
  int stopped;   // 1: stop token, 2: cancelled by the host
};

struct Params {
  const u8* tape;
  const u64* tape_begin;    // [sms] byte offset of each SM's tape
  const u8* embedding;      // [vocab][hidden] bf16, or the tape where the head is tied
  const u64* head_units;    // [vocab / 16] byte offset of each unit of the head in the tape (tied head)
  u64* packets;
  u8* kv;
  const float2* rope;       // [max_seq][rotary_dim / 2] cos, sin
  const float* norms;
  const float* biases;
  const int4* records;      // [tasks][3]
  const int4* ranges;       // [sms][lanes] body begin, body end, head begin, head end
  const int* given;         // [given_count] prompt tokens
  const int* stop_ids;      // [stop_count]
  int* tokens;              // pinned: sampled tokens in order
  volatile int* control;    // pinned: non-zero asks the kernel to stop after the token
  Report* report;           // pinned
  float* logits;            // [steps - head_from][vocab] or null
  long long* trace;         // timeline records or null (only with AMK_TRACE)
  int start_pos, given_count, steps, head_from, stop_count;
  u32 epoch;                // epoch of the first step; continues over launches
  u32 wait_limit;           // of a wait before it is declared hung, in units of 1024 SM clocks
};

}  // namespace amk
