#pragma once

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"

namespace torch::comms::base {

// A listening socket and who calls there.
class TC_API Listener {
 public:
  explicit Listener(FileDescriptor socket);

  int get() const noexcept { return socket_.get(); }
  // The next caller, whose socket does not block, and which forked children do not have; none where
  // nobody is there. When this process has no descriptor left, callers are turned away: they hear
  // at once that nobody is in, and the socket does not stay ready. That is logged the first time.
  // That takes a descriptor of its own, which it has, or takes in the next call that can.
  FileDescriptor accept() noexcept;

 private:
  FileDescriptor socket_, spare_;
  bool has_warned_ = false;
};

}  // namespace torch::comms::base
