#include "transport/waiting.hpp"

#include <sched.h>

#include <array>

#include "transport/self.hpp"
#include "transport/world.hpp"

namespace torch::comms::transport::test {
namespace {

std::unique_ptr<Transport> self_link() { return make_self_transport({}); }

TEST(WaitPolicy, SpinsWhereEachRankHasACoreOfItsAffinityMask) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  const int cores = CPU_COUNT(&before);
  EXPECT_GT(WaitPolicy::for_ranks(cores).spins, 100);
  EXPECT_LT(WaitPolicy::for_ranks(cores + 1).spins, 10);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_GT(WaitPolicy::for_ranks(1).spins, 100);
  EXPECT_LT(WaitPolicy::for_ranks(2).spins, 10);
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(Waiter, IsWokenFromItsSleepByAnAbort) {
  auto link = self_link();
  AbortSignal abort;
  std::atomic<int> sleeps = 0;
  std::thread waiter([&] {
    Transport* links[] = {link.get()};
    Waiter wait(links, abort, in(kLong), {.spins = 0, .awake = std::chrono::microseconds(0)});
    Waited end;
    while ((end = wait.step()) == Waited::kDone) sleeps = wait.sleeps();
    EXPECT_EQ(end, Waited::kAborted);
    EXPECT_GE(wait.sleeps(), 1);
  });
  abort.raise();
  waiter.join();
}

TEST(Waiter, SleepsUntilItsDeadlineAndNoLonger) {
  auto link = self_link();
  Transport* links[] = {link.get()};
  const auto start = std::chrono::steady_clock::now();
  Waiter wait(links, link->abort_signal(), start + milliseconds(5),
              {.spins = 0, .awake = std::chrono::microseconds(0)});
  while (wait.step() == Waited::kDone) {
  }
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(5));
  // Asleep, not busy: one sleep each way around the rounding of milliseconds.
  EXPECT_LE(wait.sleeps(), 3);
}

TEST(Waiter, NeverSleepsWhileSomethingMoves) {
  auto link = self_link();
  link->connect(0, link->endpoint());
  std::vector<std::byte> from(4'000'000), into(4'000'000);
  Request out, back;
  link->send(out, 0, 1, ConstBytes(from));
  link->receive(back, 0, 1, Bytes(into));
  Transport* links[] = {link.get()};
  Waiter wait(links, link->abort_signal(), in(kLong),
              {.spins = 0, .awake = std::chrono::microseconds(0)});
  while (!back.done()) ASSERT_EQ(wait.step(), Waited::kDone);
  EXPECT_EQ(wait.sleeps(), 0);
}

}  // namespace
}  // namespace torch::comms::transport::test
