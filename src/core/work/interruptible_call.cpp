#include "core/work/interruptible_call.hpp"

#include <algorithm>
#include <string>
#include <system_error>

#include <torchcomms/base/error.hpp>

#include "base/concurrency/executor.hpp"
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

void run_and_wait(milliseconds limit, std::function<void()> call,
                  const std::function<void()>& check) {
  const auto promise = std::make_shared<std::promise<void>>();
  const auto done = promise->get_future();
  const auto is_done = [&done](milliseconds time) {
    return done.wait_for(time) == std::future_status::ready;
  };
  try {
    base::Executor::process().run([call = std::move(call), promise]() mutable {
      std::exchange(call, nullptr)();
      promise->set_value();
    });
  } catch (const std::system_error& e) {
    throw CommError(Errc::kResourceExhausted,
                    std::string("no thread could be started: ") + e.what());
  }
  constexpr milliseconds kTick{50}, kBetweenChecks{500};
  const auto end = Clock::now() + limit;
  auto next_check = Clock::now() + kBetweenChecks;
  if (spin_briefly([&] { return is_done(milliseconds(0)); })) return;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    if (is_done(std::clamp(left, milliseconds(0), kTick))) return;
    if (left.count() <= 0) throw CallTimedOut();
    check_interrupt();
    if (!check || Clock::now() < next_check) continue;
    check();
    next_check = Clock::now() + kBetweenChecks;
  }
}

}  // namespace torch::comms
