#include "base/concurrency/timer.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace torch::comms::base {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

TEST(Timer, RunsCallbacksOnOneThreadInTheOrderOfTheirTimes) {
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  std::promise<void> over;
  const auto record = [&](int number) {
    order.push_back(number);
    threads.push_back(std::this_thread::get_id());
    if (order.size() == 3) over.set_value();
  };
  std::promise<void> open;
  const auto now = Clock::now();
  // None runs before all are known.
  const auto gate = schedule(now, [is_open = open.get_future().share()] { is_open.wait(); });
  const auto last = schedule(now + milliseconds(2), [&] { record(3); });
  const auto second = schedule(now + milliseconds(1), [&] { record(2); });
  const auto first = schedule(now - hours(1), [&] { record(1); });
  open.set_value();
  over.get_future().wait();
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
  EXPECT_EQ(threads, std::vector(3, threads.front()));
  EXPECT_NE(threads.front(), std::this_thread::get_id());
}

TEST(Timer, IsNeverEarly) {
  std::promise<Clock::time_point> run;
  const auto when = Clock::now() + milliseconds(3);
  const auto handle = schedule(when, [&] { run.set_value(Clock::now()); });
  EXPECT_GE(run.get_future().get(), when);
}

TEST(Timer, AnEarlierCallbackDoesNotWaitForALaterOne) {
  std::promise<void> run;
  const auto late = schedule(Clock::now() + hours(1), [] { ADD_FAILURE(); });
  const auto early = schedule(Clock::now() + milliseconds(1), [&] { run.set_value(); });
  run.get_future().wait();
}

// How often the thread has gone to sleep.
long voluntary_switches(pid_t thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  for (std::string word; status >> word;)
    if (long count = 0; word == "voluntary_ctxt_switches:" && status >> count) return count;
  return -1;
}

TEST(Timer, ACallbackThatIsCanceledEarlyDoesNotWakeTheThread) {
  std::promise<pid_t> thread;
  const auto first = schedule(Clock::now() + hours(1), [] { ADD_FAILURE(); });
  const auto run = schedule(Clock::now(), [&] { thread.set_value(::gettid()); });
  const auto number = thread.get_future().get();
  const auto before = voluntary_switches(number);
  for (int i = 0; i < 1000; ++i)
    const auto later = schedule(Clock::now() + hours(2), [] { ADD_FAILURE(); });
  EXPECT_GT(before, 0);
  EXPECT_LT(voluntary_switches(number), before + 100);
}

TEST(Timer, ACanceledCallbackNeverRuns) {
  const auto when = Clock::now() + milliseconds(20);
  const auto owned = std::make_shared<int>(1);
  auto canceled = schedule(when, [owned] { ADD_FAILURE(); });
  canceled = {};
  EXPECT_EQ(owned.use_count(), 1);
  std::promise<void> run;
  const auto later = schedule(when + milliseconds(1), [&] { run.set_value(); });
  run.get_future().wait();
}

TEST(Timer, CancelWaitsForTheCallbackThatRuns) {
  std::promise<void> begun, open, canceled;
  auto handle = schedule(Clock::now(), [&, is_open = open.get_future().share()] {
    begun.set_value();
    is_open.wait();
  });
  begun.get_future().wait();
  std::thread canceler([&] {
    handle = {};
    canceled.set_value();
  });
  const auto is_canceled = canceled.get_future();
  EXPECT_EQ(is_canceled.wait_for(milliseconds(20)), std::future_status::timeout);
  open.set_value();
  is_canceled.wait();
  canceler.join();
}

TEST(Timer, CancelDoesNotWaitForAnotherCallback) {
  std::promise<void> begun, open, ended;
  const auto running = schedule(Clock::now(), [&, is_open = open.get_future().share()] {
    begun.set_value();
    is_open.wait();
    ended.set_value();
  });
  auto other = schedule(Clock::now() + hours(1), [] { ADD_FAILURE(); });
  begun.get_future().wait();
  other = {};
  auto later = schedule(Clock::now() + hours(1), [] { ADD_FAILURE(); });
  open.set_value();
  ended.get_future().wait();
}

// Schedules itself again from its callback, which also destroys the handle of that callback.
struct Periodic {
  int left = 100;
  std::promise<void> over{};
  ScheduledCallback next{};

  void start() {
    next = schedule(Clock::now(), [this] { run(); });
  }
  void run() {
    if (left-- % 2 == 0) next = {};
    if (left > 0) return start();
    next = schedule(Clock::now(), [this] { over.set_value(); });
  }
};

TEST(Timer, ACallbackMayReplaceAndDestroyItsOwnHandle) {
  Periodic periodic;
  // All other handles are made on the timer thread.
  const auto first = schedule(Clock::now(), [&] { periodic.start(); });
  periodic.over.get_future().wait();
  EXPECT_EQ(periodic.left, 0);
}

TEST(Timer, WhatACallbackOwnsIsDestroyedOnceItHasRun) {
  std::promise<void> gone;
  std::shared_ptr<int> owned(new int(1), [&gone](const int* number) {
    delete number;
    gone.set_value();
  });
  const auto handle = schedule(Clock::now(), [owned = std::move(owned)] {});
  gone.get_future().wait();  // while the handle lives
  EXPECT_TRUE(handle);
}

// Both processes use the timer, and neither runs callbacks of the other.
TEST(Timer, AForkedChildHasItsOwn) {
  std::promise<void> begun, open, ended;
  auto running = schedule(Clock::now(), [&, is_open = open.get_future().share()] {
    begun.set_value();
    is_open.wait();
    ended.set_value();
  });
  auto pending = schedule(Clock::now() + hours(1), [] { ADD_FAILURE(); });
  begun.get_future().wait();
  const pid_t child = ::fork();
  if (child == 0) {
    running = {};  // of the parent: it does not run here
    pending = {};
    std::promise<void> run;
    const auto own = schedule(Clock::now(), [&] { run.set_value(); });
    run.get_future().wait();
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  open.set_value();
  ended.get_future().wait();
}

}  // namespace
}  // namespace torch::comms::base
