#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"

namespace torch::comms::bootstrap {

// Connects to a peer rank: it tries the addresses of the peer's contact one after the other. No
// call blocks, and there is no timeout: an address that does not respond keeps the state
// kConnecting for minutes. The caller then drops the Connector and begins a new one with the next
// address.
class TC_API Connector {
 public:
  // `contact` is a list such as "10.0.0.1:4711 [2001:db8::1]:4711". `first` is the index of the
  // address to try first; the order wraps around.
  explicit Connector(std::string_view contact, size_t first = 0);

  enum class State : uint8_t { kConnecting, kConnected, kFailed };
  State state() const noexcept { return state_; }
  // Valid in state kFailed. Returns whether all addresses refused the connection (ECONNREFUSED).
  bool is_refused() const noexcept { return is_refused_; }
  // Valid in state kFailed. Returns the errno of the last address that was tried, or of the
  // resource that ran out. 0: the contact has no valid address.
  int error() const noexcept { return error_; }
  const std::string& contact() const noexcept { return contact_; }
  // Returns the index of the current or last address, in the counting of `first`.
  size_t address_index() const noexcept { return first_ + (tried_ == 0 ? 0 : tried_ - 1); }
  size_t address_count() const noexcept { return addresses_.size(); }
  int socket() const noexcept { return socket_.get(); }

  // Call it when the socket is writable or has an error, in state kConnecting.
  State on_ready();
  base::FileDescriptor release_socket() noexcept { return std::move(socket_); }

 private:
  void try_next();

  std::string contact_;
  std::vector<std::string> addresses_;
  size_t first_, tried_ = 0;
  base::FileDescriptor socket_;
  State state_ = State::kFailed;
  bool is_refused_ = true;
  int error_ = 0;
};

}  // namespace torch::comms::bootstrap
