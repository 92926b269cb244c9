#include "core/bounded.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>

#include <torchcomms/base/error.hpp>

#include "core/own_check.hpp"

namespace torch::comms {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Never destroyed: threads may wait while the process ends.
std::function<void()>& interrupt_check() {
  static auto* const check = new std::function<void()>;
  return *check;
}

bool (*host_ends_check)() = nullptr;

// By a check of ours: those who hear that this one left learn why.
class Ended final : public Interrupted {
 public:
  explicit Ended(const CommError& error)
      : Interrupted(std::make_exception_ptr(error)), why_(error.why()) {}
  const char* what() const noexcept override { return why_.c_str(); }

 private:
  std::string why_;
};

}  // namespace

void set_interrupt_check(std::function<void()> check) { interrupt_check() = std::move(check); }

void set_host_ends(bool (*ends)()) { host_ends_check = ends; }
bool host_ends() { return host_ends_check != nullptr && host_ends_check(); }

void check_interrupt() {
  try {
    OwnCheck::run();
  } catch (const CommError& error) {
    throw Ended(error);
  }
  if (!interrupt_check()) return;
  try {
    interrupt_check()();
  } catch (...) {
    throw Interrupted(std::current_exception());
  }
}

void raise_interrupt() {
  try {
    check_interrupt();
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
}

// Where the thread finds its next task.
struct Worker::Desk {
  std::mutex mutex;  // guards task and closed, and whoever writes called; partner of changed
  std::condition_variable changed;
  std::function<void()> task;
  bool closed = false;
  std::atomic<bool> called{false};  // the thread has something to do: a task, or to end

  void work() {
    while (true) {
      spin_briefly([this] { return called.load(); });
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return called.load(); });
      if (!task) return;
      const auto next = std::exchange(task, nullptr);
      called = closed;  // also while the task was still to come: it is left behind with it
      lock.unlock();
      next();
    }
  }

  void give(std::function<void()> next) {
    const std::lock_guard lock(mutex);
    task = std::move(next);
    call();
  }

  void close() {
    const std::lock_guard lock(mutex);
    closed = true;
    call();
  }

 private:
  void call() {
    called = true;
    changed.notify_one();
  }
};

Worker::~Worker() {
  if (!desk_) return;
  desk_->close();
  thread_.join();
}

void Worker::start(std::function<void()> task) {
  if (!desk_) {
    auto desk = std::make_shared<Desk>();
    try {
      thread_ = std::thread([desk] { desk->work(); });
    } catch (const std::system_error& e) {
      throw CommError(Errc::kResourceExhausted,
                      std::string("no thread could be started: ") + e.what());
    }
    desk_ = std::move(desk);
  }
  desk_->give(std::move(task));
}

void Worker::await(milliseconds limit, const std::function<bool(milliseconds)>& is_ready,
                   const std::function<void()>& check) {
  constexpr milliseconds kTick{50}, kBetweenChecks{500};
  const auto end = Clock::now() + limit;
  auto next_check = Clock::now() + kBetweenChecks;
  try {
    if (spin_briefly([&] { return is_ready(milliseconds(0)); })) return;
    while (true) {
      const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
      if (is_ready(std::clamp(left, milliseconds(0), kTick))) return;
      if (left.count() <= 0) throw StillRunning();
      check_interrupt();
      if (!check || Clock::now() < next_check) continue;
      check();
      next_check = Clock::now() + kBetweenChecks;
    }
  } catch (const std::exception&) {
    leave_behind();
    throw;
  }
}

void Worker::leave_behind() {
  desk_->close();
  thread_.detach();
  desk_.reset();
}

}  // namespace torch::comms
