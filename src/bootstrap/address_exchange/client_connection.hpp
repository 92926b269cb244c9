#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/os/handles.hpp"
#include "bootstrap/address_exchange/response.hpp"

namespace torch::comms::bootstrap {

// A connection that came: a guest of the PendingConnections, then a client. It is told one thing,
// and closed.
class ClientConnection {
 public:
  base::FileDescriptor socket;
  int round = -1;                          // that it asks for; -1: a guest
  std::unique_ptr<ResponseReader> reader;  // of a client, which may still tell that it has failed

  void send(std::unique_ptr<ResponseWriter> answer);
  void say(const std::string& bytes);
  // Something was said, and is not all with the kernel yet.
  bool is_closing() const noexcept { return is_closing_; }

  enum class State : uint8_t { kPending, kDone, kFailed };
  // Sends what the socket takes. Does not block.
  State flush();

 private:
  std::unique_ptr<ResponseWriter> writer_;
  std::string out_;
  size_t sent_ = 0;
  bool is_closing_ = false;
};

}  // namespace torch::comms::bootstrap
