#include "base/listener.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/socket.hpp"

namespace torch::comms::base {
namespace {

// From here on this process gets no descriptor, until it ends.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int next = ::dup(0);
    ::close(next);
    rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(next);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &now), 0);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// Blocks.
FileDescriptor call_at(uint16_t port) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = parse_address(address_text("127.0.0.1", port));
  EXPECT_EQ(::connect(socket.get(), address->get(), address->size), 0);
  return socket;
}

bool is_ready(const Listener& listener) {
  pollfd polled{listener.get(), POLLIN, 0};
  return ::poll(&polled, 1, 0) > 0;
}

void turn_callers_away() {
  uint16_t port = 0;
  Listener listener(listen_anywhere(port));
  EXPECT_FALSE(listener.accept());
  const auto first = call_at(port), second = call_at(port);
  {
    const NoDescriptors none;
    ASSERT_LT(::dup(0), 0);
    EXPECT_FALSE(listener.accept());
  }
  EXPECT_FALSE(is_ready(listener));
  char byte = 0;
  EXPECT_LE(::recv(first.get(), &byte, 1, 0), 0);
  EXPECT_LE(::recv(second.get(), &byte, 1, 0), 0);

  const auto third = call_at(port);
  const auto caller = listener.accept();
  ASSERT_TRUE(caller);
  EXPECT_EQ(::recv(caller.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// In a process of its own: the first line that is logged decides for all of the process.
TEST(Listener, TurnsCallersAwayWhenThereAreNoDescriptors) {
  const pid_t child = ::fork();
  if (child == 0) {
    turn_callers_away();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace torch::comms::base
