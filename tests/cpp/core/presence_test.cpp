#include "core/presence.hpp"

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
  Presence presence;
  EXPECT_TRUE(presence.await_others(nothing, never));
  {
    const Presence::Here here(presence);
  }
  EXPECT_TRUE(presence.await_others(nothing, never));
}

TEST(Presence, OnesOwnCallsAreNotWaitedFor) {
  Presence presence, other;
  const Presence::Here outer(presence), elsewhere(other), inner(presence);
  EXPECT_TRUE(presence.await_others(nothing, never));
}

TEST(Presence, TheCallOfAnotherThreadIs) {
  Presence presence;
  std::promise<void> entered, leave;
  std::atomic<bool> left = false;
  std::thread thread([&] {
    const Presence::Here here(presence);
    entered.set_value();
    leave.get_future().wait();
    left = true;
  });
  entered.get_future().wait();
  int checks = 0;
  const auto check = [&] {
    if (++checks == 1) leave.set_value();
  };
  EXPECT_TRUE(presence.await_others(check, never));
  EXPECT_TRUE(left);
  EXPECT_GE(checks, 1);
  thread.join();
}

// Another thread, which is inside until it is told to leave.
class Visitor {
 public:
  explicit Visitor(Presence& presence)
      : thread_([this, &presence] {
          const Presence::Here here(presence);
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
  Presence presence;
  Visitor visitor(presence);
  const auto check = [] { throw std::runtime_error("enough"); };
  EXPECT_THROW(static_cast<void>(presence.await_others(check, never)), std::runtime_error);
  visitor.leave();
  EXPECT_TRUE(presence.await_others(nothing, never));
}

TEST(Presence, AThreadThatStaysWhereItIsIsNotWaitedForOnceTheHostLanguageEnds) {
  Presence presence;
  Visitor visitor(presence);
  EXPECT_FALSE(presence.await_others(nothing, [] { return true; }));
  visitor.leave();
  EXPECT_TRUE(presence.await_others(nothing, [] { return true; }));
}

}  // namespace
}  // namespace torch::comms
