#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/os/system_error.hpp"

namespace torch::comms::base {

// From here on this process gets no descriptor, until it ends.
class NoDescriptors {
 public:
  NoDescriptors() {
    // A sanitizer's first look at an error's type takes a descriptor.
    const auto error = system_error(EMFILE, "");
    EXPECT_EQ(error.what(), error.why());
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

// In a process of its own: the first line that is logged decides for all of the process.
inline void in_child(void (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace torch::comms::base
