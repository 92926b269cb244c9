#include "base/os/fork.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace torch::comms::base {
namespace {

// What `child` returns in a forked child, as its exit status.
int in_child(const std::function<int()>& child) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(child());
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST(ForkGeneration, CountsOnTheChildsSideAlone) {
  const uint64_t here = fork_generation();
  EXPECT_EQ(in_child([&] { return fork_generation() == here + 1 ? 0 : 1; }), 0);
  EXPECT_EQ(fork_generation(), here);
}

TEST(ForkGeneration, GrowsWithEachGeneration) {
  const uint64_t here = fork_generation();
  EXPECT_EQ(
      in_child([&] { return in_child([&] { return fork_generation() == here + 2 ? 0 : 1; }); }), 0);
  EXPECT_EQ(in_child([&] { return fork_generation() == here + 1 ? 0 : 1; }), 0);
}

}  // namespace
}  // namespace torch::comms::base
