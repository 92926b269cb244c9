#include "core/work/interruptible_call.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>

namespace torch::comms {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Blocks calls until the test is over, and lets the threads that were left behind go.
struct Gate {
  std::shared_ptr<std::latch> latch = std::make_shared<std::latch>(1);
  ~Gate() { latch->count_down(); }
};

TEST(Worker, ReturnsAndThrowsWhatTheCallDoes) {
  AbandonableThread worker;
  EXPECT_EQ(worker.run(seconds(20), [] { return std::string("x"); }), "x");
  EXPECT_THROW(worker.run(seconds(20), [] { throw std::out_of_range("y"); }), std::out_of_range);
  EXPECT_EQ(worker.run(seconds(20), [] { return 3; }), 3);
}

TEST(Worker, UsesOneThreadForAllCalls) {
  AbandonableThread worker;
  const auto id = [] { return std::this_thread::get_id(); };
  const auto first = worker.run(seconds(20), id);
  EXPECT_EQ(worker.run(seconds(20), id), first);
  EXPECT_NE(first, std::this_thread::get_id());
}

TEST(Worker, HasNothingOfItsCallsWhenItEnds) {
  const auto owned = std::make_shared<int>(1);
  {
    AbandonableThread worker;
    for (int i = 0; i < 100; ++i) worker.run(seconds(20), [owned] { return *owned; });
  }
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(Worker, LeavesACallBehindThatDoesNotReturnAndGoesOn) {
  Gate gate;
  AbandonableThread worker;
  EXPECT_THROW(worker.run(milliseconds(20), [latch = gate.latch] { latch->wait(); }), CallTimedOut);
  EXPECT_EQ(worker.run(seconds(20), [] { return 1; }), 1);
}

TEST(Worker, AnInterruptEndsTheWaitWithItsCause) {
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

TEST(Worker, ACallThatIsReadyIsNotInterrupted) {
  std::atomic<int> checks = 0;
  set_interrupt_check([&] { ++checks; });
  EXPECT_EQ(run_with_timeout(seconds(20), [] { return 7; }), 7);
  set_interrupt_check({});
}

}  // namespace
}  // namespace torch::comms
