#include "core/work/interruptible_call.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>

#include <torchcomms/base/error.hpp>

#include "core/work/scoped_interrupt_check.hpp"

namespace torch::comms {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Never destroyed, because threads may wait while the process exits.
std::function<void()>& interrupt_check() {
  static auto* const check = new std::function<void()>;
  return *check;
}

bool (*interpreter_exit_check)() = nullptr;

// An interrupt by a check of this library: peers that learn that this rank left get the reason.
class InterruptedByCheck final : public Interrupted {
 public:
  explicit InterruptedByCheck(const CommError& error)
      : Interrupted(std::make_exception_ptr(error)), why_(error.why()) {}
  const char* what() const noexcept override { return why_.c_str(); }

 private:
  std::string why_;
};

}  // namespace

void set_interrupt_check(std::function<void()> check) { interrupt_check() = std::move(check); }

void set_interpreter_exit_check(bool (*ends)()) { interpreter_exit_check = ends; }
bool interpreter_is_exiting() {
  return interpreter_exit_check != nullptr && interpreter_exit_check();
}

void check_interrupt() {
  try {
    ScopedInterruptCheck::run_all();
  } catch (const CommError& error) {
    throw InterruptedByCheck(error);
  }
  if (!interrupt_check()) return;
  try {
    interrupt_check()();
  } catch (...) {
    throw Interrupted(std::current_exception());
  }
}

void check_interrupt_unwrapped() {
  try {
    check_interrupt();
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
}

// The slot in which the thread finds its next task.
struct AbandonableThread::TaskSlot {
  std::mutex mutex;  // guards task, closed and writes to is_signaled; partner of changed
  std::condition_variable changed;
  std::function<void()> task;
  bool closed = false;
  std::atomic<bool> is_signaled{false};  // the thread has a task, or must end

  void run() {
    while (true) {
      spin_briefly([this] { return is_signaled.load(); });
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return is_signaled.load(); });
      if (!task) return;
      const auto next = std::exchange(task, nullptr);
      is_signaled = closed;  // also if the task was still pending: the thread is abandoned with it
      lock.unlock();
      next();
    }
  }

  void post(std::function<void()> next) {
    const std::lock_guard lock(mutex);
    task = std::move(next);
    notify();
  }

  void close() {
    const std::lock_guard lock(mutex);
    closed = true;
    notify();
  }

 private:
  void notify() {
    is_signaled = true;
    changed.notify_one();
  }
};

AbandonableThread::~AbandonableThread() {
  if (!task_slot_) return;
  task_slot_->close();
  thread_.join();
}

void AbandonableThread::post(std::function<void()> task) {
  if (!task_slot_) {
    auto slot = std::make_shared<TaskSlot>();
    try {
      thread_ = std::thread([slot] { slot->run(); });
    } catch (const std::system_error& e) {
      throw CommError(Errc::kResourceExhausted,
                      std::string("no thread could be started: ") + e.what());
    }
    task_slot_ = std::move(slot);
  }
  task_slot_->post(std::move(task));
}

void AbandonableThread::wait(milliseconds limit, const std::function<bool(milliseconds)>& is_ready,
                             const std::function<void()>& check) {
  constexpr milliseconds kTick{50}, kBetweenChecks{500};
  const auto end = Clock::now() + limit;
  auto next_check = Clock::now() + kBetweenChecks;
  try {
    if (spin_briefly([&] { return is_ready(milliseconds(0)); })) return;
    while (true) {
      const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
      if (is_ready(std::clamp(left, milliseconds(0), kTick))) return;
      if (left.count() <= 0) throw CallTimedOut();
      check_interrupt();
      if (!check || Clock::now() < next_check) continue;
      check();
      next_check = Clock::now() + kBetweenChecks;
    }
  } catch (const std::exception&) {
    abandon();
    throw;
  }
}

void AbandonableThread::abandon() {
  task_slot_->close();
  thread_.detach();
  task_slot_.reset();
}

}  // namespace torch::comms
