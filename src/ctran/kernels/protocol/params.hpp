#pragma once

#include "ctran/kernels/host/library.hpp"

namespace torch::comms::ctran::kernels {

// Where a launch runs, as all kernels have to know it.
struct TeamView {
  char* workspace[kMaxRanks];
  KernelControl* control;
  uint64_t timeout_ns;
  int32_t rank, size;
  Collective collective;
};

// What a kernel is given: a call, brought down to who sends which bytes to whom. It is the same in
// every replay of a captured launch.
//
// One hop: this rank sends `bytes` from input + p * send_stride to each p of `send_to`, and has as
// many from each of `receive_from`, which it reduces, with those at `own`, into output, or stores
// at output + p * receive_stride.
//
// Two hops: a tensor of `bytes` is cut into parts. Of each this rank sends one to its owner, if in
// send_to; it makes its own part from those of receive_from, and sends it to all of gather_to; the
// other parts come from their owners, if in gather_from. A root has no part: so each byte leaves
// it, or comes to it, once.
struct CollectiveParams : TeamView {
  const char* input;
  char* output;
  const char* own;  // this rank's part, for itself
  char* own_to;     // where it is copied; null: nowhere
  const void* factor;
  double factor_value;
  uint64_t fingerprint;  // of the call, see print.hpp
  uint64_t nan;          // what the output is filled with after a stop; 0: left as it is
  size_t bytes, output_bytes, send_stride, receive_stride;
  size_t part;                // of two hops: bytes of a rank's part
  int32_t without_part;       // the rank that has none; kMaxRanks: all have one
  uint64_t tiles, steps;      // of the workers, and for each of them
  size_t slots_offset, acks;  // in the workspaces
  int32_t root;
  uint32_t send_to, receive_from, gather_to, gather_from;  // bits by rank
  uint32_t divisor;
  uint32_t unit;    // bytes read and written at once where not 16
  bool is_aligned;  // to 16 bytes, where not at an end
  bool has_acks;
  bool has_factor;
  Dtype dtype;
};

}  // namespace torch::comms::ctran::kernels
