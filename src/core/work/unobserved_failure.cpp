#include "core/work/unobserved_failure.hpp"

#include <atomic>
#include <exception>
#include <future>
#include <system_error>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/concurrency/executor.hpp"
#include "base/os/env.hpp"
#include "base/os/log.hpp"

namespace torch::comms {
namespace {

constexpr std::chrono::seconds kObserveGrace{10};
constexpr std::chrono::seconds kBeforeTerminateTimeout{30};

// Process exit counts as observation of every failure.
std::atomic<bool> is_exiting{false};
struct ExitFlagSetter {
  ~ExitFlagSetter() { is_exiting = true; }
} at_exit;

bool is_invalid_argument(const TorchWork& work) {
  try {
    if (const auto error = work.error()) std::rethrow_exception(error);
    return false;
  } catch (const CommError& e) {
    return e.code() == Errc::kInvalidArgument;
  } catch (...) {
    return false;
  }
}

}  // namespace

std::chrono::milliseconds abort_grace() {
  return base::env_seconds("TORCHCOMM_ABORT_GRACE_SECONDS").value_or(kObserveGrace);
}

UnobservedFailureGuard::UnobservedFailureGuard(std::string comm, std::chrono::milliseconds grace,
                                               std::function<void()> before_terminate,
                                               std::function<void()> end)
    : comm_(std::move(comm)),
      grace_(grace),
      before_terminate_(std::move(before_terminate)),
      terminate_(std::move(end)) {}

void UnobservedFailureGuard::arm(TorchWork& work) noexcept {
  try {
    // A wait() in progress sees the failure after this hook, and observes it then.
    work.registerWorkMetHook([self = shared_from_this()] { self->mark_observed(); });
    const std::lock_guard lock(mutex_);
    if (is_observed_ || is_armed_) return;
    is_armed_ = true;
    pending_ = work.error();
    if (grace_ == kNever) return;
    auto expire = [self = shared_from_this(), status = work.status()] {
      try {
        base::Executor::process().run([self, status] { self->terminate(status, true); });
      } catch (const std::system_error&) {
        self->terminate(status, false);  // this thread must not wait for hooks
      }
    };
    expiry_ = base::schedule(std::chrono::steady_clock::now() + grace_, std::move(expire));
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError,
              "communicator '" + comm_ +
                  "' failed, and no thread checks whether the failure is observed: " + e.what());
  }
}

void UnobservedFailureGuard::arm_on_failure(TorchWork& work) {
  if (work.status() == WorkStatus::COMPLETED) return;
  work.registerWorkEndHook([self = shared_from_this(), ended = &work] {
    if (ended->status() != WorkStatus::COMPLETED && !is_invalid_argument(*ended)) self->arm(*ended);
  });
}

std::exception_ptr UnobservedFailureGuard::mark_observed() noexcept {
  base::ScheduledCallback expiry;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  is_observed_ = true;
  expiry = std::move(expiry_);
  return std::exchange(pending_, nullptr);
}

void UnobservedFailureGuard::terminate(WorkStatus status, bool runs_hooks) {
  {
    const std::lock_guard lock(mutex_);
    if (is_observed_ || is_exiting) return;
  }
  const bool timed_out = status == WorkStatus::TIMEDOUT;
  base::log(base::LogLevel::kError,
            std::string("Aborting process due to ") + (timed_out ? "timeout" : "error") +
                ": an asynchronous operation on communicator '" + comm_ + "' " +
                (timed_out ? "timed out" : "failed") +
                ", and no call, wait() or finalize() observed the error within " +
                std::to_string(grace_.count()) +
                " ms. Call wait() on every work. To change this: TORCHCOMM_ABORT_GRACE_SECONDS, "
                "or new_comm(..., abort_process_on_timeout_or_error=False)");
  if (runs_hooks) run_hooks_before_termination();
  terminate_();
}

// Abort hooks belong to the program. A hook that blocks, or needs a lock of a stuck thread, ends
// with the process.
void UnobservedFailureGuard::run_hooks_before_termination() {
  try {
    const auto done = std::make_shared<std::promise<void>>();
    const auto done_future = done->get_future();
    base::Executor::unshared().run([self = shared_from_this(), done] {
      self->before_terminate_();
      done->set_value();
    });
    done_future.wait_for(kBeforeTerminateTimeout);
  } catch (const std::system_error& e) {
    base::log(base::LogLevel::kError,
              std::string("no thread could be started for abort hooks: ") + e.what());
  }
}

}  // namespace torch::comms
