#include <string>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/fork.hpp"
#include "core/bounded.hpp"
#include "core/staging_desk.hpp"

namespace torch::comms {

Staging::Work::Work(std::shared_ptr<Desk> desk, std::shared_ptr<Job> job)
    : desk_(std::move(desk)),
      job_(std::move(job)),
      limit_(job_->call.timeout.count() > 0 ? job_->call.timeout
                                            : desk_->backend().getOptions().timeout),
      fork_generation_(base::fork_generation()) {}

void Staging::Work::require_own_process() const {
  if (fork_generation_ != base::fork_generation())
    throw CommError(Errc::kForked, "this work was started before fork(); its parent waits for it",
                    {.op = std::string(opToString(job_->call.op))});
}

void Staging::Work::wait() {
  require_own_process();
  runWaitPreHooks();
  desk_->await_stage(*job_, Job::Stage::kRunning);
  if (const auto inner = desk_->inner_of(*job_)) {
    try {
      inner->wait();  // which makes progress here
    } catch (const CommError&) {
      // The desk meets it, too, and makes it this work's.
    }
  }
  if (desk_->await_stage(*job_, Job::Stage::kReturning) == Job::Stage::kFailed)
    block();
  else
    desk_->order_current_stream(*job_);
  runWaitPostHooks();
  rethrowIfFailed();
}

// Whoever has waited for the device finds it complete, though the desk's thread is still asleep.
void Staging::Work::poll() noexcept {
  if (fork_generation_ != base::fork_generation()) return;
  try {
    if (desk_->has_returned(*job_)) setStatus(WorkStatus::COMPLETED);
  } catch (const std::exception&) {
    // Of a device that has failed the desk's thread tells.
  }
}

void Staging::Work::block() {
  constexpr std::chrono::milliseconds kTick{50};
  try {
    while (!waitForTerminal(kTick)) check_interrupt();
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
}

void Staging::Work::waitBlocking() {
  require_own_process();
  desk_->await_stage(*job_, Job::Stage::kRunning);
  // Whether a work of that backend can be waited for like this is its own to say.
  if (const auto inner = desk_->inner_of(*job_); inner && !isTerminal(inner->status()))
    inner->waitBlocking();
  wait();
  block();
}

void Staging::Work::hostSynchronize() {
  block();
  rethrowIfFailed();
}

int Staging::Work::source() const noexcept {
  const auto inner = desk_->inner_of(*job_);
  return inner ? inner->source() : kAnySource;
}

}  // namespace torch::comms
