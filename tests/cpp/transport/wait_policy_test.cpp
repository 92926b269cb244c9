#include "transport/waiting/wait_policy.hpp"

#include <sched.h>

#include <array>

#include "transport/connect/peer_connection.hpp"
#include "transport/self_transport.hpp"
#include "transport/world.hpp"

namespace torch::comms::transport::test {
namespace {

std::unique_ptr<Transport> self_link() { return make_self_transport({}); }

TEST(WaitPolicy, SpinsWhereEachRankHasACoreOfItsAffinityMask) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  const int cores = CPU_COUNT(&before);
  EXPECT_GT(WaitPolicy::for_ranks(cores).spins, 50);
  EXPECT_LT(WaitPolicy::for_ranks(cores + 1).spins, 10);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_GT(WaitPolicy::for_ranks(1).spins, 50);
  EXPECT_LT(WaitPolicy::for_ranks(2).spins, 10);
  EXPECT_GT(WaitPolicy::for_ranks(2, 2).spins, 50);  // whatever this thread may use
  EXPECT_LT(WaitPolicy::for_ranks(3, 2).spins, 10);
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(Gaps, AreWaitedForAwakeWhereTheyEndSoon) {
  using std::chrono::microseconds;
  IdleGaps gaps;
  EXPECT_EQ(gaps.awake_time(microseconds(100)), microseconds(100));
  gaps.add(microseconds(400));
  EXPECT_EQ(gaps.awake_time(microseconds(100)), microseconds(600));
  gaps.add(microseconds(10));  // between others it is as before
  EXPECT_GT(gaps.awake_time(microseconds(100)), microseconds(500));
  gaps.add(IdleGaps::kMaxGap);
  EXPECT_EQ(gaps.awake_time(microseconds(100)), microseconds(1500));
  for (int i = 0; i < 5; ++i) gaps.add(microseconds(20'000));
  EXPECT_EQ(gaps.awake_time(microseconds(100)), microseconds(100));
}

// Tells when its owner is about to sleep.
class SleepObserver final : public PeerConnection {
 public:
  explicit SleepObserver(std::atomic<bool>& asleep) : asleep_(asleep) {}
  uint32_t max_payload() const noexcept override { return 64; }
  bool try_send(const Frame&, std::span<const ConstBytes>, uint32_t*) noexcept override {
    return false;
  }
  ReceiveStatus receive(FrameSink&) noexcept override { return ReceiveStatus::kNothing; }
  const std::string& error_text() const noexcept override { return none_; }
  bool prepare_sleep(bool) noexcept override {
    asleep_ = true;
    return true;
  }

 private:
  std::atomic<bool>& asleep_;
  std::string none_;
};

TEST(Waiter, IsWokenFromItsSleepByAnAbort) {
  std::atomic<bool> asleep = false;
  TransportOptions options;
  options.wrap_connection = [&](int, std::unique_ptr<PeerConnection>) {
    return std::make_unique<SleepObserver>(asleep);
  };
  auto link = make_self_transport(options);
  link->connect(0, link->endpoint());
  std::thread waiter([&] {
    Transport* links[] = {link.get()};
    Waiter wait(links, link->abort_signal(), in(kLong), kSleepy);
    WaitResult end = WaitResult::kDone;
    while (end == WaitResult::kDone && link->state(0) == PeerState::kReady) end = wait.step();
    EXPECT_EQ(link->state(0), PeerState::kFailed);
    EXPECT_LE(wait.sleep_count(), 1);  // none where the abort came just before it
  });
  while (!asleep) std::this_thread::yield();
  link->abort_signal().raise();
  waiter.join();
}

TEST(Waiter, SleepsUntilItsDeadlineAndNoLonger) {
  auto link = self_link();
  Transport* links[] = {link.get()};
  const auto start = std::chrono::steady_clock::now();
  Waiter wait(links, link->abort_signal(), start + milliseconds(5), kSleepy);
  while (wait.step() == WaitResult::kDone) {
  }
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(5));
  // Asleep, not busy: one sleep each way around the rounding of milliseconds.
  EXPECT_LE(wait.sleep_count(), 3);
}

TEST(Waiter, NeverSleepsWhileSomethingMoves) {
  auto link = self_link();
  link->connect(0, link->endpoint());
  std::vector<std::byte> from(4'000'000), into(4'000'000);
  Request out, back;
  link->send(out, 0, 1, ConstBytes(from));
  link->receive(back, 0, 1, Bytes(into));
  Transport* links[] = {link.get()};
  Waiter wait(links, link->abort_signal(), in(kLong), kSleepy);
  while (!back.is_done()) ASSERT_EQ(wait.step(), WaitResult::kDone);
  EXPECT_EQ(wait.sleep_count(), 0);
}

// Between the last look at a condition and the announcement of a sleep nobody rings: the condition
// is looked at again after the announcement, or its change would be slept through.
TEST(Waiter, LooksAtTheConditionBetweenAnnouncingAndSleeping) {
  std::atomic<bool> announced = false;
  TransportOptions options;
  options.wrap_connection = [&](int, std::unique_ptr<PeerConnection>) {
    return std::make_unique<SleepObserver>(announced);
  };
  auto link = make_self_transport(options);
  link->connect(0, link->endpoint());
  Transport* links[] = {link.get()};
  const auto deadline = in(kLong);
  // True from the announcement on, and nobody rings.
  EXPECT_EQ(
      wait_until(links, link->abort_signal(), deadline, kSleepy, [&] { return announced.load(); }),
      WaitResult::kDone);
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
}

}  // namespace
}  // namespace torch::comms::transport::test
