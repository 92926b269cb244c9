#pragma once

#include "ctran/kernels/host/library.hpp"

namespace torch::comms::ctran::kernels {

// A rank's view of its team, which all kernels need.
struct TeamView {
  char* workspace[kMaxRanks];
  KernelControl* control;
  uint64_t timeout_ns;
  int32_t rank, size;
  Collective collective;
};

// Parameters of a kernel: a call, resolved into which rank sends which bytes to which. They are the
// same in every replay of a captured launch.
//
// One hop: this rank sends `bytes` from input + p * send_stride to each rank p of `send_to`, and
// receives as many from each rank p of `receive_from`. It reduces them, with the bytes at `own`,
// into output, or stores them at output + p * receive_stride.
//
// Two hops: a tensor of `bytes` is divided into parts. This rank sends each part to its owner, if
// the owner is in send_to. It reduces its own part from the ranks of receive_from, and sends the
// result to all of gather_to. The other parts come from their owners, if these are in gather_from.
// A root has no part, so each byte leaves or reaches it once.
struct CollectiveParams : TeamView {
  const char* input;
  char* output;
  const char* own;  // this rank's part for itself
  char* own_to;     // where `own` is copied; null: nowhere
  const void* factor;
  double factor_value;
  uint64_t fingerprint;  // of the call, see call_fingerprint.hpp
  uint64_t nan;          // fill of the output after a stop; 0: unchanged
  size_t bytes, output_bytes, send_stride, receive_stride;
  size_t part;                // of two hops: bytes of a rank's part
  int32_t without_part;       // the rank without a part; kMaxRanks: all have one
  uint64_t tiles, steps;      // of all workers together, and of each worker
  size_t slots_offset, acks;  // offsets in the workspaces
  int32_t root;
  uint32_t send_to, receive_from, gather_to, gather_from;  // bit masks of ranks
  uint32_t divisor;
  uint32_t unit;    // bytes read and written at once where 16 is impossible
  bool is_aligned;  // to 16 bytes, except at an end
  bool has_acks;
  bool has_factor;
  Dtype dtype;
};

}  // namespace torch::comms::ctran::kernels
