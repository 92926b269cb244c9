#include "core/work/watchdog.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace torch::comms {
namespace {

// Wants to be looked at so many times.
class Counted final : public WatchdogClient {
 public:
  void want(int times) {
    const std::lock_guard lock(mutex_);
    wanted_ = times;
  }
  void poll(std::chrono::steady_clock::time_point) noexcept override {
    const std::lock_guard lock(mutex_);
    ++seen_;
    if (wanted_ > 0) --wanted_;
    changed_.notify_all();
  }
  bool is_active() noexcept override {
    const std::lock_guard lock(mutex_);
    return wanted_ > 0;
  }
  int wait_until_through() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return wanted_ == 0; });
    return seen_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int wanted_ = 0, seen_ = 0;
};

TEST(Watchdog, LooksUntilNobodyWantsThatAndAgainWhenAsked) {
  const auto watched = std::make_shared<Counted>();
  watched->want(3);
  add_to_watchdog(watched);
  add_to_watchdog(watched);  // once is enough
  EXPECT_GE(watched->wait_until_through(), 3);
  watched->want(2);
  add_to_watchdog(watched);
  EXPECT_GE(watched->wait_until_through(), 5);
}

TEST(Watchdog, LooksAtAllOfThem) {
  const auto first = std::make_shared<Counted>(), second = std::make_shared<Counted>();
  first->want(1);
  second->want(4);
  add_to_watchdog(first);
  add_to_watchdog(second);
  first->wait_until_through();
  EXPECT_GE(second->wait_until_through(), 4);
}

TEST(Watchdog, AForkedChildHasItsOwn) {
  const auto parents = std::make_shared<Counted>();
  parents->want(1'000'000);
  add_to_watchdog(parents);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto own = std::make_shared<Counted>();
    own->want(2);
    add_to_watchdog(own);
    ::_exit(own->wait_until_through());
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  parents->want(0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

}  // namespace
}  // namespace torch::comms
