#pragma once

#include <cstdint>

#include "ctran/kernels/windows/window_copies.hpp"

// The copy of what a rank has for itself, for launch_with_copy_engines().
namespace torch::comms::ctran::kernels {

// Long ones run on the call's side stream, beside the copies to peers; in a capture they are a
// branch of the graph. A few blocks of threads do it there, for a copy engine that does it takes
// from what the others of the GPU have for the peers. Others are on the call's stream, before those
// copies. So are they where the side stream is in another capture, which keeps it until it ends.
//
// `Runtime` is whose streams and events these are. It gives 0, or an error:
//   record(event, stream), wait(stream, event), copy(DeviceCopy, stream)
//   copy_by_threads(DeviceCopy, stream)
//   find_capture(stream, id)    id: set to the capture's, 0 where there is none
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

  // After begin(), also where that or what came later has failed: a capture that ends without its
  // side stream is lost.
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
