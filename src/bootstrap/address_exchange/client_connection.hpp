#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/os/handles.hpp"
#include "bootstrap/address_exchange/response.hpp"

namespace torch::comms::bootstrap {

// A connection that this rank has accepted: first a pending connection of PendingConnections, then
// a client. It gets one response or notice and is closed.
class ClientConnection {
 public:
  base::FileDescriptor socket;
  int round = -1;                          // the round of its request; -1: still pending
  std::unique_ptr<ResponseReader> reader;  // set for a client, which may still report a failure

  void send(std::unique_ptr<ResponseWriter> response);
  void send_notice(const std::string& bytes);
  // Returns whether a response or notice has been queued. The connection closes once it is sent.
  bool is_closing() const noexcept { return is_closing_; }

  enum class State : uint8_t { kPending, kDone, kFailed };
  // Sends what the socket takes. Does not block.
  // Returns: kDone when all is with the kernel.
  State flush();

 private:
  std::unique_ptr<ResponseWriter> writer_;
  std::string out_;
  size_t sent_ = 0;
  bool is_closing_ = false;
};

}  // namespace torch::comms::bootstrap
