#pragma once

#include <cstdint>

#include "ctran/kernels/windows/window_copies.hpp"

// Copies a rank's part for itself, for launch_with_copy_engines().
namespace torch::comms::ctran::kernels {

// The copy of this rank's part for itself. A long copy runs on the call's side stream, in parallel
// with the copies to peers; in a capture it is a branch of the graph. A few thread blocks do it
// there, because a copy engine would take bandwidth from the copies to peers.
// A short copy runs on the call's stream before those copies. So does a long copy while the side
// stream is in another capture, which holds the stream until it ends.
//
// `Runtime` has the functions on streams and events. They return 0, or an error:
//   record(event, stream), wait(stream, event), copy(DeviceCopy, stream)
//   copy_by_threads(DeviceCopy, stream)
//   find_capture(stream, id)    sets `id` to the capture's, 0 if there is none
template <class Runtime>
class LocalCopy {
 public:
  LocalCopy(const WindowCollectiveCall::SideStreamHandles& side, void* stream, Runtime runtime)
      : side_(side), stream_(stream), runtime_(runtime) {}

  int begin(const DeviceCopy& copy) {
    bool may_fork = false;
    if (const int error = check_capture(copy, may_fork)) return error;
    if (!may_fork) return runtime_.copy(copy, stream_);
    if (const int error = runtime_.record(side_.forked, stream_)) return error;
    if (const int error = runtime_.wait(side_.stream, side_.forked)) return error;
    is_forked_ = true;
    return runtime_.copy_by_threads(copy, side_.stream);
  }

  // Makes the call's stream wait for the copy. Call it after begin(), also if begin() or a later
  // step has failed: a capture that ends before its side stream has joined is invalid.
  int join() {
    if (!is_forked_) return 0;
    is_forked_ = false;
    const int error = runtime_.record(side_.joined, side_.stream);
    return error != 0 ? error : runtime_.wait(stream_, side_.joined);
  }

 private:
  int check_capture(const DeviceCopy& copy, bool& may_fork) const {
    if (side_.stream == nullptr || copy.bytes < kForkMinBytes) return 0;
    uint64_t of_side = 0, of_call = 0;
    if (const int error = runtime_.find_capture(side_.stream, of_side)) return error;
    if (const int error = runtime_.find_capture(stream_, of_call)) return error;
    may_fork = of_side == 0 || of_side == of_call;
    return 0;
  }

  const WindowCollectiveCall::SideStreamHandles side_;
  void* const stream_;
  const Runtime runtime_;
  bool is_forked_ = false;
};

}  // namespace torch::comms::ctran::kernels
