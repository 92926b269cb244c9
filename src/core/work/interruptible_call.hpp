#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Lets the host language end long waits of the start-up: `check` runs about 20 times a second on
// the thread that waits, and what it throws ends the wait. Empty: nothing runs. Set it while
// nothing waits.
TC_API void set_interrupt_check(std::function<void()> check);

// Whether the host language is on its way out: its other threads then stay in whatever call they
// are in until the process ends. `ends` is asked from any thread; empty: it never is. Set it while
// nothing waits.
TC_API void set_interpreter_exit_check(bool (*ends)());
TC_API bool interpreter_is_exiting();

// The host language wants out; `cause` is what its check threw.
class TC_API Interrupted : public std::exception {
 public:
  explicit Interrupted(std::exception_ptr cause) : cause_(std::move(cause)) {}
  const char* what() const noexcept override { return "interrupted"; }
  [[noreturn]] void rethrow_cause() const { std::rethrow_exception(cause_); }

 private:
  std::exception_ptr cause_;
};

// Runs the check. Throws Interrupted.
TC_API void check_interrupt();
// The same for who has nothing to clean up: throws what the check threw itself.
TC_API void check_interrupt_unwrapped();

// A call did not return in time; it goes on by itself on a thread that is left behind.
class TC_API CallTimedOut : public std::exception {
 public:
  const char* what() const noexcept override { return "the call did not return in time"; }
};

// Looks for `condition` during 0.15 ms. A store of this host answers within 0.1 ms; a thread that
// sleeps meanwhile needs another tenth to wake up, a dozen times in a start-up.
// Returns: false if it has not come.
template <class Condition>
bool spin_briefly(const Condition& condition) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::microseconds(150);
  for (; Clock::now() < end; std::this_thread::yield())
    if (condition()) return true;
  return false;
}

// A thread for calls that may block for ever: an operation on a TCPStore whose server is stopped
// never returns, whatever its timeout. Used by one thread at a time.
class TC_API AbandonableThread {
 public:
  AbandonableThread() = default;
  AbandonableThread(const AbandonableThread&) = delete;
  AbandonableThread& operator=(const AbandonableThread&) = delete;
  ~AbandonableThread();

  // Runs `call` on the thread and returns what it returns or throws. `call` must own all it uses,
  // since it may outlive this object. Throws CallTimedOut after `limit`, Interrupted,
  // CommError(kResourceExhausted) if no thread can be made. After the first two the thread is left
  // behind with its call; a later run gets a new one. So after what `check` throws, which runs some
  // times a second in between.
  template <class Call>
  auto run(std::chrono::milliseconds limit, Call call, const std::function<void()>& check = {})
      -> std::invoke_result_t<Call> {
    using Result = std::invoke_result_t<Call>;
    auto task = std::make_shared<std::packaged_task<Result()>>(std::move(call));
    auto result = task->get_future();
    post([task] { (*task)(); });
    const auto is_ready = [&result](std::chrono::milliseconds time) {
      return result.wait_for(time) == std::future_status::ready;
    };
    wait(limit, is_ready, check);
    return result.get();
  }

 private:
  struct TaskSlot;
  void post(std::function<void()> task);
  void wait(std::chrono::milliseconds limit,
            const std::function<bool(std::chrono::milliseconds)>& is_ready,
            const std::function<void()>& check);
  void abandon();

  std::shared_ptr<TaskSlot> task_slot_;  // shared with the thread
  std::thread thread_;
};

// The same for a single call.
template <class Call>
auto run_with_timeout(std::chrono::milliseconds limit, Call call,
                      const std::function<void()>& check = {}) -> std::invoke_result_t<Call> {
  AbandonableThread worker;
  return worker.run(limit, std::move(call), check);
}

}  // namespace torch::comms
