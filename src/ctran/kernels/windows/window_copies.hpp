#pragma once

#include "ctran/kernels/windows/window_plan.hpp"

// A call on a region by copy engines: all that is enqueued for it, as pure functions of it.
namespace torch::comms::ctran::kernels {

struct DeviceCopy {
  char* to;
  const char* from;
  size_t bytes;
};
struct DeviceCopies {
  DeviceCopy all[kMaxRanks];  // to peers
  int count = 0;
  DeviceCopy local{};  // of what this rank has for itself; no bytes: there is none
};

// The copies of a stage. After each stage the ranks meet. Of a call that uses_copy_engines().
int stages_of(const TeamDescriptor& team, const WindowCollectiveCall& call);
DeviceCopies copies_of(const TeamDescriptor& team, const WindowCollectiveCall& call, int stage);

// The kernel of an all-reduce that makes this rank's part of it, in its own tensor.
WindowCollectiveParams local_reduction_params(const TeamDescriptor& team,
                                              const WindowCollectiveCall& call);

// Bytes of a copy that is worth a fork: that costs microseconds, which is what a shorter one takes.
inline constexpr size_t kForkMinBytes = size_t{8} << 20;
// Whether `call.side` has a use. False where the call makes no sense.
bool needs_side_stream(const TeamDescriptor& team, const WindowCollectiveCall& call);

// All that a library enqueues, in this order. `sync()` is a launch of params_of(), `reduce()` one
// of local_reduction_params(), `copy(DeviceCopy)` one of the copies to peers;
// `own.begin(DeviceCopy)` begins the copy of what this rank has for itself, which what comes after
// `own.join()` waits for. They give 0, or an error, which ends it and is the result; but what has
// begun is joined.
template <class Meet, class Reduce, class CopyOne, class Own>
int launch_with_copy_engines(const TeamDescriptor& team, const WindowCollectiveCall& call,
                             const Meet& meet, const Reduce& reduce, const CopyOne& copy,
                             Own& own) {
  int error = is_reduction(call.call.collective) ? reduce() : meet();
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
    if (error == 0) error = meet();
  }
  return error;
}

}  // namespace torch::comms::ctran::kernels
