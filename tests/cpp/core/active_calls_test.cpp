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
  ActiveCalls presence;
  EXPECT_TRUE(presence.wait_until_idle(nothing, never));
  {
    const ActiveCalls::CallScope here(presence);
  }
  EXPECT_TRUE(presence.wait_until_idle(nothing, never));
}

TEST(Presence, OnesOwnCallsAreNotWaitedFor) {
  ActiveCalls presence, other;
  const ActiveCalls::CallScope outer(presence), elsewhere(other), inner(presence);
  EXPECT_TRUE(presence.wait_until_idle(nothing, never));
}

TEST(Presence, TheCallOfAnotherThreadIs) {
  ActiveCalls presence;
  std::promise<void> entered, leave;
  std::atomic<bool> left = false;
  std::thread thread([&] {
    const ActiveCalls::CallScope here(presence);
    entered.set_value();
    leave.get_future().wait();
    left = true;
  });
  entered.get_future().wait();
  int checks = 0;
  const auto check = [&] {
    if (++checks == 1) leave.set_value();
  };
  EXPECT_TRUE(presence.wait_until_idle(check, never));
  EXPECT_TRUE(left);
  EXPECT_GE(checks, 1);
  thread.join();
}

// Another thread, which is inside until it is told to leave.
class Visitor {
 public:
  explicit Visitor(ActiveCalls& presence)
      : thread_([this, &presence] {
          const ActiveCalls::CallScope here(presence);
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
  ActiveCalls presence;
  Visitor visitor(presence);
  const auto check = [] { throw std::runtime_error("enough"); };
  EXPECT_THROW(static_cast<void>(presence.wait_until_idle(check, never)), std::runtime_error);
  visitor.leave();
  EXPECT_TRUE(presence.wait_until_idle(nothing, never));
}

TEST(Presence, AThreadThatStaysWhereItIsIsNotWaitedForOnceTheHostLanguageEnds) {
  ActiveCalls presence;
  Visitor visitor(presence);
  EXPECT_FALSE(presence.wait_until_idle(nothing, [] { return true; }));
  visitor.leave();
  EXPECT_TRUE(presence.wait_until_idle(nothing, [] { return true; }));
}

}  // namespace
}  // namespace torch::comms
