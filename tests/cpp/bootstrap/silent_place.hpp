#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "base/net/socket.hpp"

// An address from which nothing comes back, as where packets vanish: its queue of connections is
// full, so that the system drops whatever asks for one more.
class SilentPlace {
 public:
  SilentPlace() {
    namespace base = torch::comms::base;
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    for (auto& each : queued_) {  // one more than it is to hold: Linux counts so
      each = base::begin_connect(*base::parse_address(address()));
      pollfd polled{each.get(), POLLOUT, 0};
      EXPECT_EQ(::poll(&polled, 1, 20'000), 1);
    }
  }
  std::string address() const { return torch::comms::base::format_address("127.0.0.1", port_); }

 private:
  uint16_t port_ = 0;
  torch::comms::base::FileDescriptor listener_ =
      torch::comms::base::listen_on_all_interfaces(port_);
  std::array<torch::comms::base::FileDescriptor, 2> queued_;
};
