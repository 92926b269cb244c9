#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "core/variable.hpp"

namespace torch::comms {

// Where the process of a StoreProcess writes its port. The test StoreProcessBody runs there.
inline constexpr const char* kStorePipe = "TORCHCOMM_TEST_PIPE";

// A process that serves a TCPStore, to be killed or stopped. It is this test program again: a fork
// of a process with threads may not start threads.
class StoreProcess {
 public:
  StoreProcess() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const Variable pipe(kStorePipe, std::to_string(ends[1]).c_str());
    std::string program = "/proc/self/exe", filter = "--gtest_filter=StoreProcessBody.*",
                all = "--gtest_also_run_disabled_tests", brief = "--gtest_brief=1";
    char* const arguments[] = {program.data(), filter.data(), all.data(), brief.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), nullptr, nullptr, arguments, environ), 0);
    ::close(ends[1]);
    EXPECT_EQ(::read(ends[0], &port_, sizeof port_), static_cast<ssize_t>(sizeof port_));
    ::close(ends[0]);
  }
  ~StoreProcess() {
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  // Returns after SIGSTOP when the process has stopped: until then it may answer.
  void signal(int number) const {
    ::kill(pid_, number);
    if (number == SIGSTOP) ::waitpid(pid_, nullptr, WUNTRACED);
  }
  uint16_t port() const { return port_; }

 private:
  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

}  // namespace torch::comms
