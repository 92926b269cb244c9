#pragma once

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

// Sets the function by which the host language interrupts long waits of the library: of the
// start-up, of works, of synchronous operations and of finalize(). `check` runs about 20 times a
// second on the waiting thread, and an exception of `check` ends the wait. An empty `check`
// disables this. Call it only while no thread waits.
TC_API void set_interrupt_check(std::function<void()> check);

// Sets the function that returns whether the host language is exiting. Its other threads then stay
// inside their calls until the process ends. `ends` runs on any thread; null means never. Call it
// only while no thread waits.
TC_API void set_interpreter_exit_check(bool (*ends)());
// Returns: the result of that function; false if none is set.
TC_API bool interpreter_is_exiting();

// Thrown when the interrupt check ends a wait; `cause` is the exception of the check.
class TC_API Interrupted : public std::exception {
 public:
  explicit Interrupted(std::exception_ptr cause) : cause_(std::move(cause)) {}
  const char* what() const noexcept override { return "interrupted"; }
  [[noreturn]] void rethrow_cause() const { std::rethrow_exception(cause_); }

 private:
  std::exception_ptr cause_;
};

// Runs the interrupt check, after the checks of each ScopedInterruptCheck of this thread.
// Throws: Interrupted; other exceptions of scoped checks that are not CommErrors pass unchanged.
TC_API void check_interrupt();
// Runs check_interrupt() for callers that have nothing to clean up.
// Throws: the exception of the check itself.
TC_API void check_interrupt_unwrapped();

// Thrown when a call did not return in time; the call continues on an abandoned thread.
class TC_API CallTimedOut : public std::exception {
 public:
  const char* what() const noexcept override { return "the call did not return in time"; }
};

// Polls `condition` for 0.15 ms. A store on this host answers within 0.1 ms. A thread that sleeps
// meanwhile needs another 0.1 ms to wake up, about a dozen times in a start-up.
// Returns: false if the condition did not become true.
template <class Condition>
bool spin_briefly(const Condition& condition) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::microseconds(150);
  for (; Clock::now() < end; std::this_thread::yield())
    if (condition()) return true;
  return false;
}

// Runs `call` on another thread for run_with_timeout().
// Throws: CallTimedOut after `limit`; Interrupted; CommError(kResourceExhausted) if no thread can
// be started; the exception of `check`.
TC_API void run_and_wait(std::chrono::milliseconds limit, std::function<void()> call,
                         const std::function<void()>& check);

// Runs `call`, which may block forever, on another thread: an operation on a TCPStore whose server
// is stopped never returns, whatever its timeout. `check` runs on the caller about every 500 ms.
// Returns: the result of `call`, which is destroyed by then.
// Blocks: until `call` returns, `limit` has passed, or a check throws.
// Throws: the exception of `call` or `check`; CallTimedOut; Interrupted;
// CommError(kResourceExhausted).
// Lifetime: `call` must own everything it uses, because the thread is abandoned with it after
// CallTimedOut, Interrupted or an exception of `check`.
template <class Call>
auto run_with_timeout(std::chrono::milliseconds limit, Call call,
                      const std::function<void()>& check = {}) -> std::invoke_result_t<Call> {
  auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Call>()>>(std::move(call));
  auto result = task->get_future();
  run_and_wait(limit, [task = std::move(task)] { (*task)(); }, check);
  return result.get();
}

}  // namespace torch::comms
