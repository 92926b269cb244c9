#include "core/comm/active_calls.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>

namespace torch::comms {
namespace {

void nothing() {}
bool never() { return false; }

TEST(Presence, NobodyIsWaitedForWhereNobodyIs) {
  ActiveCalls active_calls;
  EXPECT_TRUE(active_calls.wait_until_idle(nothing, never));
  {
    const ActiveCalls::CallScope here(active_calls);
  }
  EXPECT_TRUE(active_calls.wait_until_idle(nothing, never));
}

TEST(Presence, OnesOwnCallsAreNotWaitedFor) {
  ActiveCalls active_calls, other;
  const ActiveCalls::CallScope outer(active_calls), elsewhere(other), inner(active_calls);
  EXPECT_TRUE(active_calls.wait_until_idle(nothing, never));
}

TEST(Presence, TheCallOfAnotherThreadIs) {
  ActiveCalls active_calls;
  std::promise<void> entered, leave;
  std::atomic<bool> left = false;
  std::thread thread([&] {
    const ActiveCalls::CallScope here(active_calls);
    entered.set_value();
    leave.get_future().wait();
    left = true;
  });
  entered.get_future().wait();
  int checks = 0;
  const auto check = [&] {
    if (++checks == 1) leave.set_value();
  };
  EXPECT_TRUE(active_calls.wait_until_idle(check, never));
  EXPECT_TRUE(left);
  EXPECT_GE(checks, 1);
  thread.join();
}

// Another thread, which is inside until it is told to leave.
class BlockedCall {
 public:
  explicit BlockedCall(ActiveCalls& active_calls)
      : thread_([this, &active_calls] {
          const ActiveCalls::CallScope here(active_calls);
          entered_.set_value();
          leave_.get_future().wait();
        }) {
    entered_.get_future().wait();
  }
  void leave() {
    leave_.set_value();
    thread_.join();
  }

 private:
  std::promise<void> entered_, leave_;
  std::thread thread_;
};

TEST(Presence, TheWaitEndsWithWhatTheCheckThrows) {
  ActiveCalls active_calls;
  BlockedCall blocked(active_calls);
  const auto check = [] { throw std::runtime_error("enough"); };
  EXPECT_THROW(static_cast<void>(active_calls.wait_until_idle(check, never)), std::runtime_error);
  blocked.leave();
  EXPECT_TRUE(active_calls.wait_until_idle(nothing, never));
}

TEST(Presence, AThreadThatStaysWhereItIsIsNotWaitedForOnceTheHostLanguageEnds) {
  ActiveCalls active_calls;
  BlockedCall blocked(active_calls);
  EXPECT_FALSE(active_calls.wait_until_idle(nothing, [] { return true; }));
  blocked.leave();
  EXPECT_TRUE(active_calls.wait_until_idle(nothing, [] { return true; }));
}

}  // namespace
}  // namespace torch::comms
