#include "core/unmet.hpp"

#include <atomic>
#include <exception>
#include <future>
#include <thread>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/env.hpp"
#include "base/log.hpp"

namespace torch::comms {
namespace {

constexpr std::chrono::seconds kObserveGrace{10};
constexpr std::chrono::seconds kReportLimit{30};

// The end of the process has met every failure.
std::atomic<bool> exiting{false};
struct AtExit {
  ~AtExit() { exiting = true; }
} at_exit;

bool was_in_vain(const TorchWork& work) {
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

Unmet::Unmet(std::string comm, std::chrono::milliseconds grace, std::function<void()> last_words,
             std::function<void()> end)
    : comm_(std::move(comm)),
      grace_(grace),
      last_words_(std::move(last_words)),
      end_(std::move(end)) {}

void Unmet::watch(TorchWork& work) noexcept {
  try {
    // A wait that is on its way learns of the failure after this hook, and meets it then.
    work.registerWorkMetHook([self = shared_from_this()] { self->met(); });
    {
      std::lock_guard lock(mutex_);
      if (met_ || watching_) return;
      watching_ = true;
      pending_ = work.error();
    }
    if (grace_ == kNever) return;
    std::thread([self = shared_from_this(), status = work.status()] {
      self->expect(status);
    }).detach();
  } catch (const std::exception& e) {
    base::log(
        base::LogLevel::kError,
        "communicator '" + comm_ + "' failed and cannot watch whether anyone notices: " + e.what());
  }
}

void Unmet::follow(TorchWork& work) {
  if (work.status() == WorkStatus::COMPLETED) return;
  work.registerWorkEndHook([self = shared_from_this(), ended = &work] {
    if (ended->status() != WorkStatus::COMPLETED && !was_in_vain(*ended)) self->watch(*ended);
  });
}

std::exception_ptr Unmet::met() noexcept {
  std::lock_guard lock(mutex_);
  met_ = true;
  changed_.notify_all();
  return std::exchange(pending_, nullptr);
}

void Unmet::expect(WorkStatus status) {
  {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, grace_, [this] { return met_; }) || exiting) return;
  }
  last(status);
}

void Unmet::last(WorkStatus status) {
  const char* cause = status == WorkStatus::TIMEDOUT ? "timeout" : "error";
  base::log(base::LogLevel::kError,
            std::string("Aborting process due to ") + cause +
                ": an asynchronous operation of "
                "communicator '" +
                comm_ +
                "' failed, and no wait(), call or finalize() has met "
                "that for " +
                std::to_string(grace_.count()) +
                " ms. Wait for every work, raise "
                "TORCHCOMM_ABORT_GRACE_SECONDS, or make the communicator with "
                "abort_process_on_timeout_or_error=False");
  // Hooks are the program's: one that blocks, or wants a lock of a stuck thread, ends with it.
  std::promise<void> said;
  auto heard = said.get_future();
  std::thread([self = shared_from_this(), said = std::move(said)]() mutable {
    self->last_words_();
    said.set_value();
  }).detach();
  heard.wait_for(kReportLimit);
  end_();
}

}  // namespace torch::comms
