#include "base/concurrency/awaited_threads.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>

namespace torch::comms::base {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit{20'000};

constexpr int kWaited = 7, kDidNotWait = 3;

bool is_child = false;
std::atomic<bool> is_run{false};

AwaitedThreads& threads() {
  // Registered before the object, so that it runs when that has gone.
  static const int last = std::atexit([] {
    if (is_child) ::_exit(is_run ? kWaited : kDidNotWait);
  });
  static AwaitedThreads instance(kLimit);
  EXPECT_EQ(last, 0);
  return instance;
}

TEST(AwaitedThreads, AreCountedUntilWhatTheyOwnIsGone) {
  std::promise<void> run, go;
  struct Owned {
    std::shared_future<void> may_go;
    ~Owned() { may_go.wait(); }
  };
  std::shared_ptr<Owned> owned(new Owned{go.get_future().share()});
  threads().run([&run, owned = std::move(owned)] { run.set_value(); });
  run.get_future().wait();
  EXPECT_FALSE(threads().wait_for(0, milliseconds(0)));
  EXPECT_TRUE(threads().wait_for(1, milliseconds(0)));
  go.set_value();
  EXPECT_TRUE(threads().wait_for(0, kLimit));
}

int go[2];

[[noreturn]] void end_with_a_thread() {
  is_child = true;
  if (!threads().wait_for(0, milliseconds(0)) || ::pipe(go) != 0) ::_exit(1);
  threads().run([] {
    char byte = 0;
    static_cast<void>(::read(go[0], &byte, 1));
    is_run = true;
  });
  // Registered after the object, so that it runs first.
  std::atexit([] { static_cast<void>(::write(go[1], "x", 1)); });
  std::exit(0);
}

TEST(AwaitedThreads, AForkedChildHasItsOwnAndItsEndWaitsForThem) {
  std::promise<void> begun, open;
  threads().run([&begun, is_open = open.get_future().share()] {
    begun.set_value();
    is_open.wait();
  });
  // Before it has begun it may hold locks that the child gets as they are, such as a sanitizer's.
  begun.get_future().wait();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) end_with_a_thread();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kWaited);
  open.set_value();
  EXPECT_TRUE(threads().wait_for(0, kLimit));
}

}  // namespace
}  // namespace torch::comms::base
