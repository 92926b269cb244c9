#include "core/work/interruptible_call.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>

namespace torch::comms {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Blocks calls until the test is over, and lets the threads that were left behind go.
struct Gate {
  std::shared_ptr<std::latch> latch = std::make_shared<std::latch>(1);
  ~Gate() { latch->count_down(); }
};

TEST(RunWithTimeout, ReturnsAndThrowsWhatTheCallDoes) {
  EXPECT_EQ(run_with_timeout(seconds(20), [] { return std::string("x"); }), "x");
  EXPECT_THROW(run_with_timeout(seconds(20), [] { throw std::out_of_range("y"); }),
               std::out_of_range);
  EXPECT_EQ(run_with_timeout(seconds(20), [] { return 3; }), 3);
}

TEST(RunWithTimeout, UsesAThreadAgainButNotTheCallers) {
  constexpr size_t kCalls = 100;
  // No std::thread::id: that of a thread that has ended goes to the next one.
  std::set<pid_t> threads;
  for (size_t i = 0; i < kCalls; ++i)
    threads.insert(run_with_timeout(seconds(20), [] { return ::gettid(); }));
  EXPECT_FALSE(threads.contains(::gettid()));
  // A thread may not be idle yet when the next call begins.
  EXPECT_LT(threads.size(), kCalls);
}

TEST(RunWithTimeout, ACallIsDestroyedWhenItReturns) {
  const auto owned = std::make_shared<int>(1);
  for (int i = 0; i < 100; ++i) {
    run_with_timeout(seconds(20), [owned] { return *owned; });
    ASSERT_EQ(owned.use_count(), 1);
    EXPECT_THROW(run_with_timeout(seconds(20), [owned] { throw std::out_of_range("y"); }),
                 std::out_of_range);
    ASSERT_EQ(owned.use_count(), 1);
  }
}

TEST(RunWithTimeout, LeavesACallBehindThatDoesNotReturnAndGoesOn) {
  Gate gate;
  EXPECT_THROW(run_with_timeout(milliseconds(20), [latch = gate.latch] { latch->wait(); }),
               CallTimedOut);
  EXPECT_EQ(run_with_timeout(seconds(20), [] { return 1; }), 1);
}

TEST(RunWithTimeout, AnExceptionOfTheCheckEndsTheWait) {
  Gate gate;
  EXPECT_THROW(
      run_with_timeout(seconds(20), [latch = gate.latch] { latch->wait(); }, [] { throw 3; }), int);
}

TEST(RunWithTimeout, AnInterruptEndsTheWaitWithItsCause) {
  Gate gate;
  set_interrupt_check([] { throw std::string("out"); });
  try {
    run_with_timeout(seconds(20), [latch = gate.latch] { latch->wait(); });
    ADD_FAILURE();
  } catch (const Interrupted& e) {
    EXPECT_THROW(e.rethrow_cause(), std::string);
  }
  set_interrupt_check({});
}

TEST(RunWithTimeout, ACallThatIsReadyIsNotInterrupted) {
  std::atomic<int> checks = 0;
  set_interrupt_check([&] { ++checks; });
  EXPECT_EQ(run_with_timeout(seconds(20), [] { return 7; }), 7);
  set_interrupt_check({});
}

}  // namespace
}  // namespace torch::comms
