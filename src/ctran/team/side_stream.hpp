#pragma once

#include <functional>
#include <memory>

#include "ctran/kernels/windows/window_collectives.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::ctran {

// The stream and events with which a launch by copy engines copies in parallel with its own stream.
//
// Threads: any; launches that use one run one at a time.
class SideStream {
 public:
  // Creates them on `device`, whichever device is current, also while this thread captures.
  // Throws: CommError(kVendor).
  SideStream(const std::shared_ptr<const gpu::Runtime>& runtime, int device);

  kernels::WindowCollectiveCall::SideStreamHandles get() const noexcept {
    return {stream_.get(), forked_.get(), joined_.get()};
  }

 private:
  using Handle = std::unique_ptr<void, std::function<void(void*)>>;

  Handle stream_, forked_, joined_;
};

}  // namespace torch::comms::ctran
