#include "core/presence.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>

namespace torch::comms {
namespace {

void nothing() {}

TEST(Presence, NobodyIsWaitedForWhereNobodyIs) {
  Presence presence;
  presence.await_others(nothing);
  {
    const Presence::Here here(presence);
  }
  presence.await_others(nothing);
}

TEST(Presence, OnesOwnCallsAreNotWaitedFor) {
  Presence presence, other;
  const Presence::Here outer(presence), elsewhere(other), inner(presence);
  presence.await_others(nothing);
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
  presence.await_others([&] {
    if (++checks == 1) leave.set_value();
  });
  EXPECT_TRUE(left);
  EXPECT_GE(checks, 1);
  thread.join();
}

TEST(Presence, TheWaitEndsWithWhatTheCheckThrows) {
  Presence presence;
  std::promise<void> entered, leave;
  std::thread thread([&] {
    const Presence::Here here(presence);
    entered.set_value();
    leave.get_future().wait();
  });
  entered.get_future().wait();
  EXPECT_THROW(presence.await_others([] { throw std::runtime_error("enough"); }),
               std::runtime_error);
  leave.set_value();
  thread.join();
  presence.await_others(nothing);
}

}  // namespace
}  // namespace torch::comms
