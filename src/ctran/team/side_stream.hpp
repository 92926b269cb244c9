#pragma once

#include <functional>
#include <memory>

#include "ctran/kernels/windows/window_collectives.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::ctran {

// What a launch by copy engines needs to copy beside its own stream.
//
// Threads: any; what is launched with one, one at a time.
class SideStream {
 public:
  // On that device, whichever is current, also while this thread captures. Throws
  // CommError(kVendor).
  SideStream(const std::shared_ptr<const gpu::Runtime>& runtime, int device);

  kernels::WindowCollectiveCall::SideStreamHandles get() const noexcept {
    return {stream_.get(), forked_.get(), joined_.get()};
  }

 private:
  using Handle = std::unique_ptr<void, std::function<void(void*)>>;

  Handle stream_, forked_, joined_;
};

}  // namespace torch::comms::ctran
