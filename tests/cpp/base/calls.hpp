#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <utility>

#include "base/net/socket.hpp"
#include "base/os/handles.hpp"

namespace torch::comms::base {

// A connection to that port of 127.0.0.1, which blocks; empty where nobody listens there.
inline FileDescriptor try_call_at(uint16_t port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = parse_address(format_address("127.0.0.1", port));
  const bool taken = ::connect(socket.get(), address->get(), address->size) == 0;
  return taken ? std::move(socket) : FileDescriptor();
}

// The same, where somebody must listen.
inline FileDescriptor call_at(uint16_t port) {
  auto socket = try_call_at(port);
  EXPECT_TRUE(socket) << "port " << port;
  return socket;
}

// Another process, which has such a connection until leave().
class Caller {
 public:
  explicit Caller(uint16_t port) {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data()), 0);
    process_ = ::fork();
    if (process_ == 0) stay(port);
    ::close(ends_[1]);
    char is_there = 0;
    EXPECT_EQ(::recv(ends_[0], &is_there, 1, 0), 1);
    EXPECT_EQ(is_there, 'y');
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  ~Caller() { leave(); }

  // Returns when it has ended.
  void leave() {
    if (process_ < 0) return;
    ::close(ends_[0]);
    EXPECT_EQ(::waitpid(process_, nullptr, 0), process_);
    process_ = -1;
  }

 private:
  [[noreturn]] void stay(uint16_t port) const {
    ::close(ends_[0]);
    const auto held = try_call_at(port);
    char byte = held ? 'y' : 'n';
    static_cast<void>(::send(ends_[1], &byte, 1, MSG_NOSIGNAL));
    static_cast<void>(::recv(ends_[1], &byte, 1, 0));
    ::_exit(0);
  }

  std::array<int, 2> ends_{};
  pid_t process_ = -1;
};

}  // namespace torch::comms::base
