#include <string>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/os/fork.hpp"
#include "core/staging/staging_executor.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {

Staging::StagedWork::StagedWork(std::shared_ptr<StagingExecutor> desk,
                                std::shared_ptr<StagedOperation> job)
    : executor_(std::move(desk)),
      operation_(std::move(job)),
      timeout_(operation_->call.timeout.count() > 0 ? operation_->call.timeout
                                                    : executor_->backend().getOptions().timeout),
      fork_generation_(base::fork_generation()) {}

void Staging::StagedWork::require_own_process() const {
  if (fork_generation_ != base::fork_generation())
    throw CommError(Errc::kForked, "this work was started before fork(); its parent waits for it",
                    {.op = std::string(opToString(operation_->call.op))});
}

void Staging::StagedWork::wait() {
  require_own_process();
  runWaitPreHooks();
  executor_->wait_for_stage(*operation_, StagedOperation::Stage::kRunning);
  if (const auto inner = executor_->backend_work_of(*operation_)) {
    try {
      inner->wait();  // which makes progress here
    } catch (const CommError&) {
      // The desk meets it, too, and makes it this work's.
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

// Whoever has waited for the device finds it complete, though the desk's thread is still asleep.
void Staging::StagedWork::poll() noexcept {
  if (fork_generation_ != base::fork_generation()) return;
  try {
    if (executor_->is_copied_back(*operation_)) setStatus(WorkStatus::COMPLETED);
  } catch (const std::exception&) {
    // Of a device that has failed the desk's thread tells.
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
  // Whether a work of that backend can be waited for like this is its own to say.
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
