#pragma once

#include "ctran/kernels/windows/window_plan.hpp"

// All that is enqueued for a window collective by copy engines: pure functions of the call.
namespace torch::comms::ctran::kernels {

struct DeviceCopy {
  char* to;
  const char* from;
  size_t bytes;
};
struct DeviceCopies {
  DeviceCopy all[kMaxRanks];  // to peers
  int count = 0;
  DeviceCopy local{};  // this rank's part for itself; 0 bytes: none
};

// Number of stages, and the copies of a stage, of a call that uses_copy_engines(). After each stage
// the ranks synchronize.
int stages_of(const TeamDescriptor& team, const WindowCollectiveCall& call);
DeviceCopies copies_of(const TeamDescriptor& team, const WindowCollectiveCall& call, int stage);

// Returns the parameters of the kernel that makes this rank's part of an all-reduce in its own
// tensor.
WindowCollectiveParams local_reduction_params(const TeamDescriptor& team,
                                              const WindowCollectiveCall& call);

// The least bytes of a copy that is worth a fork to the side stream. A fork costs microseconds, as
// much as a shorter copy takes.
inline constexpr size_t kForkMinBytes = size_t{8} << 20;
// Whether WindowCollectiveCall::side_stream has a use. False if the call is invalid.
bool needs_side_stream(const TeamDescriptor& team, const WindowCollectiveCall& call);

// Enqueues all that a call needs, in order. `synchronize()` launches params_of(), `reduce()`
// launches local_reduction_params(), `copy(DeviceCopy)` enqueues a copy to a peer.
// `own.begin(DeviceCopy)` begins the copy of this rank's part for itself; what is enqueued after
// `own.join()` waits for it.
// Returns: 0, or the first error. An error ends the sequence, but a copy that has begun is joined.
template <class Synchronize, class Reduce, class CopyOne, class Own>
int launch_with_copy_engines(const TeamDescriptor& team, const WindowCollectiveCall& call,
                             const Synchronize& synchronize, const Reduce& reduce,
                             const CopyOne& copy, Own& own) {
  int error = is_reduction(call.call.collective) ? reduce() : synchronize();
  const auto copy_all = [&](const DeviceCopies& copies) {
    for (int i = 0; i < copies.count && error == 0; ++i) error = copy(copies.all[i]);
  };
  for (int stage = 0; stage < stages_of(team, call) && error == 0; ++stage) {
    const DeviceCopies copies = copies_of(team, call, stage);
    const bool has_own = copies.local.bytes != 0;
    if (has_own) error = own.begin(copies.local);
    copy_all(copies);
    const int joined = has_own ? own.join() : 0;
    if (error == 0) error = joined;
    if (error == 0) error = synchronize();
  }
  return error;
}

}  // namespace torch::comms::ctran::kernels
