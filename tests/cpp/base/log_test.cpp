#include "base/os/log.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace torch::comms::base {
namespace {

// What a child process writes to standard error; the level is read once a process.
std::string logged(const char* level, void (*talk)()) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (level != nullptr) ::setenv("TORCHCOMM_LOG_LEVEL", level, 1);
    ::dup2(ends[1], STDERR_FILENO);
    talk();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char block[4096];
  for (ssize_t n; (n = ::read(ends[0], block, sizeof block)) > 0;)
    text.append(block, static_cast<size_t>(n));
  ::close(ends[0]);
  ::waitpid(pid, nullptr, 0);
  return text;
}

void one_of_each() {
  log(LogLevel::kError, "e");
  log(LogLevel::kWarning, "w");
  log(LogLevel::kInfo, "i");
  log(LogLevel::kDebug, "d");
}

int lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Log, TheLevelDecides) {
  EXPECT_EQ(lines(logged("error", one_of_each)), 1);
  EXPECT_EQ(lines(logged(nullptr, one_of_each)), 2);
  EXPECT_EQ(lines(logged("warning", one_of_each)), 2);
  EXPECT_EQ(lines(logged("debug", one_of_each)), 4);
}

TEST(Log, ALineNamesLevelAndProcess) {
  const auto text = logged("error", one_of_each);
  EXPECT_EQ(text.rfind("torchcomms error [", 0), 0u) << text;
  EXPECT_NE(text.find("]: e\n"), std::string::npos) << text;
}

TEST(Log, LinesOfManyThreadsStayWhole) {
  const auto text = logged("info", [] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([t] {
        for (int i = 0; i < 50; ++i)
          log(LogLevel::kInfo, std::string(200, static_cast<char>('a' + t)));
      });
    for (auto& thread : threads) thread.join();
  });
  EXPECT_EQ(lines(text), 200);
  for (size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    const auto line = text.substr(begin, end - begin);
    ASSERT_GT(line.size(), 200u);
    EXPECT_EQ(line.substr(line.size() - 200), std::string(200, line.back()));
    begin = end + 1;
  }
}

}  // namespace
}  // namespace torch::comms::base
