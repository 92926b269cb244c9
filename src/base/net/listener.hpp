#pragma once

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"

namespace torch::comms::base {

// A listening TCP socket.
class TC_API Listener {
 public:
  explicit Listener(FileDescriptor socket);

  int get() const noexcept { return socket_.get(); }
  // Accepts the next connection. Returns: a nonblocking socket that forked children do not inherit,
  // or an empty one if none is pending.
  //
  // If the process is out of descriptors, pending connections are accepted and closed at once. So
  // the peer sees the refusal, and the listening socket does not stay readable. A warning is logged
  // the first time. This needs one spare descriptor, which the Listener holds or opens again in a
  // later call.
  FileDescriptor accept() noexcept;

 private:
  // `spare_` is a descriptor held back for accept() when the process has no other left.
  FileDescriptor socket_, spare_;
  bool has_warned_ = false;
};

}  // namespace torch::comms::base
