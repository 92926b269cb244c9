#include "core/work/unobserved_failure.hpp"

#include <atomic>
#include <future>

#include <gtest/gtest.h>

#include <torchcomms/base/error.hpp>

#include "base/concurrency/timer.hpp"
#include "base/no_descriptors.hpp"
#include "base/no_threads.hpp"

namespace torch::comms {
namespace {

using std::chrono::milliseconds;

// A work whose transitions the test makes.
class ObservedWork : public TorchWork {
 public:
  void wait() override {
    waitForTerminal(milliseconds::max());
    runWaitPostHooks();
    rethrowIfFailed();
  }
  void fail(const std::shared_ptr<UnobservedFailureGuard>& guard) {
    registerWorkEndHook([this, guard] { guard->arm(*this); });
    setStatus(WorkStatus::TIMEDOUT,
              std::make_exception_ptr(CommError(Errc::kTimeout, "limit passed")));
  }
};

// Says what happened at the end, once.
struct End {
  std::promise<void> over;
  std::atomic<int> before_terminate_calls{0};
  std::atomic<int> ends{0};
  std::shared_ptr<UnobservedFailureGuard> guard(milliseconds grace) {
    return std::make_shared<UnobservedFailureGuard>(
        "watched", grace, [this] { ++before_terminate_calls; },
        [this] {
          ++ends;
          over.set_value();
        });
  }
};

TEST(Unmet, AFailureThatNobodyMeetsEndsTheProcessAfterItsHooks) {
  End end;
  const auto work = c10::make_intrusive<ObservedWork>();
  work->fail(end.guard(milliseconds(1)));
  ASSERT_EQ(end.over.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(end.before_terminate_calls, 1);
  EXPECT_EQ(end.ends, 1);
}

#if defined(__GLIBC__)
TEST(Unmet, WithoutThreadsTheProcessEndsAndItsHooksDoNotRun) {
  // In a child, which has no idle threads.
  base::in_child([] {
    std::promise<void> started;
    const auto timer =
        base::schedule(std::chrono::steady_clock::now(), [&] { started.set_value(); });
    started.get_future().wait();
    const base::NoThreads none;
    End end;
    const auto work = c10::make_intrusive<ObservedWork>();
    work->fail(end.guard(milliseconds(1)));
    end.over.get_future().wait();
    EXPECT_EQ(end.before_terminate_calls, 0);
  });
}
#endif

TEST(Unmet, WhatWasMetBeforeIsNotWatched) {
  End end;
  const auto guard = end.guard(milliseconds(1));
  guard->mark_observed();  // by a call that raised
  const auto work = c10::make_intrusive<ObservedWork>();
  work->fail(guard);
  EXPECT_EQ(guard.use_count(), 2);  // here and in the work, but not in the timer
}

TEST(Unmet, WhoMeetsItFirstGetsIt) {
  End end;
  const auto guard = end.guard(UnobservedFailureGuard::kNever);
  EXPECT_EQ(guard->mark_observed(), nullptr);
  const auto another = end.guard(UnobservedFailureGuard::kNever);
  const auto work = c10::make_intrusive<ObservedWork>();
  work->fail(another);
  EXPECT_EQ(another->mark_observed(), work->error());
  EXPECT_EQ(another->mark_observed(), nullptr);
}

TEST(Unmet, AWaitMeetsItAndEndsTheWatch) {
  End end;
  std::weak_ptr<UnobservedFailureGuard> watched;
  {
    auto guard = end.guard(std::chrono::hours(1));
    watched = guard;
    const auto work = c10::make_intrusive<ObservedWork>();
    work->fail(guard);
    EXPECT_THROW(work->wait(), CommError);
  }
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(end.ends, 0);
}

TEST(Unmet, WhoHandsTheFailureOnMeetsIt) {
  End end;
  const auto guard = end.guard(UnobservedFailureGuard::kNever);
  const auto work = c10::make_intrusive<ObservedWork>();
  work->fail(guard);
  work->meetFailure();
  EXPECT_EQ(guard->mark_observed(), nullptr);
}

}  // namespace
}  // namespace torch::comms
