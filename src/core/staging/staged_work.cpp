#include <string>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/os/fork.hpp"
#include "core/staging/staging_executor.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {

Staging::StagedWork::StagedWork(std::shared_ptr<StagingExecutor> executor,
                                std::shared_ptr<StagedOperation> job)
    : executor_(std::move(executor)),
      operation_(std::move(job)),
      timeout_(operation_->call.timeout.count() > 0 ? operation_->call.timeout
                                                    : executor_->backend().getOptions().timeout),
      fork_generation_(base::fork_generation()) {}

void Staging::StagedWork::require_own_process() const {
  if (fork_generation_ != base::fork_generation())
    throw CommError(Errc::kForked,
                    "this work was started before fork(); only the parent process can wait for it",
                    {.op = std::string(opToString(operation_->call.op))});
}

void Staging::StagedWork::wait() {
  require_own_process();
  runWaitPreHooks();
  executor_->wait_for_stage(*operation_, StagedOperation::Stage::kRunning);
  if (const auto inner = executor_->backend_work_of(*operation_)) {
    try {
      inner->wait();  // this makes progress on the calling thread
    } catch (const CommError&) {
      // The executor sees the error, too, and stores it in this work.
    }
  }
  if (executor_->wait_for_stage(*operation_, StagedOperation::Stage::kCopyingBack) ==
      StagedOperation::Stage::kFailed)
    block();
  else
    executor_->order_current_stream(*operation_);
  runWaitPostHooks();
  rethrowIfFailed();
}

// A caller that has waited for the device finds the work complete, even if the executor's thread
// still sleeps.
void Staging::StagedWork::poll() noexcept {
  if (fork_generation_ != base::fork_generation()) return;
  try {
    if (executor_->is_copied_back(*operation_)) setStatus(WorkStatus::COMPLETED);
  } catch (const std::exception&) {
    // The executor's thread reports a failed device.
  }
}

void Staging::StagedWork::block() {
  constexpr std::chrono::milliseconds kTick{50};
  try {
    while (!waitForTerminal(kTick)) check_interrupt();
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
}

void Staging::StagedWork::waitBlocking() {
  require_own_process();
  executor_->wait_for_stage(*operation_, StagedOperation::Stage::kRunning);
  // The backend's work decides whether it supports waitBlocking().
  if (const auto inner = executor_->backend_work_of(*operation_);
      inner && !isTerminal(inner->status()))
    inner->waitBlocking();
  wait();
  block();
}

void Staging::StagedWork::hostSynchronize() {
  block();
  rethrowIfFailed();
}

int Staging::StagedWork::source() const noexcept {
  const auto inner = executor_->backend_work_of(*operation_);
  return inner ? inner->source() : kAnySource;
}

}  // namespace torch::comms
