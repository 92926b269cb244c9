#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"

namespace torch::comms::bootstrap {

// A connection to a rank in the making: its contact's addresses, one after the other. Nothing here
// blocks, or has a limit: an address from which nothing comes back keeps it kConnecting for
// minutes, and whoever drops it then begins the next one with the address after that.
class TC_API Connector {
 public:
  // "10.0.0.1:4711 [2001:db8::1]:4711"; `first`: which of them, counted on from the last to the
  // first again, is tried first.
  explicit Connector(std::string_view contact, size_t first = 0);

  enum class State : uint8_t { kConnecting, kConnected, kFailed };
  State state() const noexcept { return state_; }
  // Once it is lost: nobody listens at any of the addresses.
  bool is_refused() const noexcept { return is_refused_; }
  // Why (an errno): by the last address that was tried, or what this process has run out of. 0
  // where none was an address.
  int error() const noexcept { return error_; }
  const std::string& contact() const noexcept { return contact_; }
  // Which address is tried, or was last, for `first`.
  size_t address_index() const noexcept { return first_ + (tried_ == 0 ? 0 : tried_ - 1); }
  size_t address_count() const noexcept { return addresses_.size(); }
  int socket() const noexcept { return socket_.get(); }

  // The socket became writable, or broke, while connecting.
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
