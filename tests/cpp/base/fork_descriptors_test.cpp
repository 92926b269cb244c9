#include "base/os/fork_descriptors.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "base/no_descriptors.hpp"
#include "base/os/handles.hpp"

namespace torch::comms::base {
namespace {

struct Pair {
  FileDescriptor here, there;
  Pair() {
    std::array<int, 2> sockets{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
    here = FileDescriptor(sockets[0]);
    there = FileDescriptor(sockets[1]);
  }
};

TEST(StopInChildren, AConnectionEndsWithItsProcessThoughAChildLives) {
  Pair connection, leave;
  set_close_on_fork(connection.here.get());
  const pid_t child = ::fork();
  if (child == 0) {
    leave.here = {};
    char byte = 0;
    const bool is_socket = ::send(connection.here.get(), &byte, 1, MSG_NOSIGNAL) == 1;
    // Others are as they were.
    const bool is_notified = ::recv(leave.there.get(), &byte, 1, 0) == 1;
    ::_exit(!is_socket && is_notified && ::fcntl(connection.here.get(), F_GETFD) >= 0 ? 0 : 1);
  }
  connection.here = {};
  char byte = 1;
  EXPECT_EQ(::recv(connection.there.get(), &byte, 1, 0), 0);  // while the child lives
  EXPECT_EQ(::send(leave.here.get(), &byte, 1, MSG_NOSIGNAL), 1);
  int status = 1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A number that is free would be that of the next file, on which the child would then act.
TEST(StopInChildren, NumbersAreKeptWhereThereIsNoDescriptorLeft) {
  const Pair first, second;
  set_close_on_fork(first.here.get());
  set_close_on_fork(second.here.get());
  pid_t child = -1;
  {
    const NoDescriptors none;
    child = ::fork();
  }
  if (child == 0) {
    const auto stands_for_nothing = [](const Pair& pair) {
      return ::fcntl(pair.here.get(), F_GETFD) >= 0 &&
             ::send(pair.here.get(), "", 1, MSG_NOSIGNAL) < 0;
    };
    ::_exit(stands_for_nothing(first) && stands_for_nothing(second) ? 0 : 1);
  }
  int status = 1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(StopInChildren, IsForgottenWhenItCloses) {
  int number = -1;
  {
    const Pair closed;
    number = closed.here.get();
    set_close_on_fork(number);
  }
  const Pair later;
  ASSERT_EQ(later.here.get(), number);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::send(later.here.get(), &number, 1, MSG_NOSIGNAL) == 1 ? 0 : 1);
  int status = 1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace torch::comms::base
