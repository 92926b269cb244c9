#include "backends/nccl/streams/nccl_work.hpp"

#include <utility>

#include "backends/nccl/streams/nccl_call.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms::nccl {
namespace {

// How often a blocked thread checks for Ctrl-C.
constexpr std::chrono::milliseconds kWorkTick{50};

}  // namespace

NcclWork::NcclWork(LaunchQueue::LaunchScope& scope, gpu::EventPool::Lease end, KeptStorages keep)
    : queue_(scope.queue_.shared_from_this()),
      op_(scope.call_.op),
      name_(scope.call_.name),
      sequence_(scope.call_.sequence),
      is_async_(scope.call_.async_op),
      timeout_(scope.call_.timeout),
      has_own_timeout_(scope.call_.has_own_timeout),
      stream_(scope.stream_),
      capture_(scope.capture_),
      end_(std::move(end)),
      started_(std::move(scope.started_)),
      kept_storages_(std::move(keep)) {}

std::string NcclWork::format_timeout_error() const {
  const auto launched = call();
  return nccl::format_timeout_error(launched, "not finished");
}

void NcclWork::with_hooks(void (NcclWork::*body)()) {
  runWaitPreHooks();
  try {
    (this->*body)();
  } catch (...) {
    runWaitPostHooks();
    throw;
  }
  runWaitPostHooks();
}

void NcclWork::wait() { with_hooks(&NcclWork::order_current_stream); }

void NcclWork::order_current_stream() { wait_without_hooks(queue_->device().current_stream()); }

void NcclWork::wait_without_hooks(gpu::NativeStream current) {
  const auto& device = queue_->device();
  // Checked first: after a failure there is nothing to wait for.
  auto failure = failure_reason();
  if (!failure && device.is_run_by_host(current)) {
    block();
    failure = failure_reason();
  } else if (!failure && current != stream_) {
    const NcclDevice::CurrentDeviceGuard on(device);
    // A captured operation can be waited for only inside its own capture.
    if (capture_ == 0 || device.runtime().capture_of(current) == capture_)
      device.runtime().wait(current, end_.get());
  }
  if (!failure) return;
  queue_->mark_failure_observed();
  std::rethrow_exception(failure);
}

std::exception_ptr NcclWork::failure_reason() const {
  if (status() == WorkStatus::COMPLETED) return nullptr;
  const auto own = error();
  return own ? own : queue_->communicator().failure().error();
}

void NcclWork::block() {
  try {
    while (!waitForTerminal(kWorkTick)) check_interrupt();
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
}

void NcclWork::waitBlocking() {
  if (is_async_) return TorchWork::waitBlocking();
  with_hooks(&NcclWork::hostSynchronize);
}

void NcclWork::hostSynchronize() {
  block();
  if (error()) queue_->mark_failure_observed();
  rethrowIfFailed();
}

}  // namespace torch::comms::nccl
