#include "base/awaited_threads.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>

namespace torch::comms::base {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLimit{20'000};

AwaitedThreads& threads() {
  static AwaitedThreads made(kLimit);
  return made;
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

int done[2];

// Ends the child by itself where that waits.
[[noreturn]] void end_with_a_thread() {
  if (!threads().wait_for(0, milliseconds(0)) || ::pipe(done) != 0) ::_exit(2);
  threads().run([] {
    char byte = 0;
    static_cast<void>(::read(done[0], &byte, 1));
    ::_exit(7);
  });
  // Registered after the static object, so that it runs before that one goes.
  std::atexit([] { static_cast<void>(::write(done[1], "x", 1)); });
  std::exit(3);
}

TEST(AwaitedThreads, AForkedChildHasItsOwnAndItsEndWaitsForThem) {
  std::promise<void> go;
  threads().run([may_go = go.get_future().share()] { may_go.wait(); });
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) end_with_a_thread();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  go.set_value();
  EXPECT_TRUE(threads().wait_for(0, kLimit));
}

}  // namespace
}  // namespace torch::comms::base
