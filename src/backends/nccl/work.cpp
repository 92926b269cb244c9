#include "backends/nccl/work.hpp"

#include <utility>

#include "backends/nccl/call.hpp"
#include "core/interruptible_call.hpp"

namespace torch::comms::nccl {
namespace {

// How often a blocked thread looks whether the user wants out (Ctrl-C).
constexpr std::chrono::milliseconds kWorkTick{50};

}  // namespace

Work::Work(Lane::Slot& slot, gpu::EventPool::Lease end, Kept keep)
    : lane_(slot.lane_.shared_from_this()),
      op_(slot.call_.op),
      name_(slot.call_.name),
      number_(slot.call_.number),
      async_(slot.call_.async_op),
      limit_(slot.call_.limit),
      limit_is_own_(slot.call_.limit_is_own),
      stream_(slot.stream_),
      capture_(slot.capture_),
      end_(std::move(end)),
      started_(std::move(slot.started_)),
      keep_(std::move(keep)) {}

std::string Work::limit_text() const {
  const auto launched = call();
  return nccl::limit_text(launched, "not finished");
}

void Work::with_hooks(void (Work::*body)()) {
  runWaitPreHooks();
  try {
    (this->*body)();
  } catch (...) {
    runWaitPostHooks();
    throw;
  }
  runWaitPostHooks();
}

void Work::wait() { with_hooks(&Work::settle_current); }

void Work::settle_current() { settle(lane_->device().current_stream()); }

void Work::settle(gpu::NativeStream current) {
  const auto& device = lane_->device();
  // Before anything else: behind a failure there is nothing to wait for.
  auto failure = reason();
  if (!failure && device.is_run_by_host(current)) {
    block();
    failure = reason();
  } else if (!failure && current != stream_) {
    const Device::CurrentDeviceGuard on(device);
    // A graph's operation is ordered inside of its capture alone.
    if (capture_ == 0 || device.runtime().capture_of(current) == capture_)
      device.runtime().wait(current, end_.get());
  }
  if (!failure) return;
  lane_->meet_failure();
  std::rethrow_exception(failure);
}

std::exception_ptr Work::reason() const {
  if (status() == WorkStatus::COMPLETED) return nullptr;
  const auto own = error();
  return own ? own : lane_->communicator().failure().error();
}

void Work::block() {
  try {
    while (!waitForTerminal(kWorkTick)) check_interrupt();
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
}

void Work::waitBlocking() {
  if (async_) return TorchWork::waitBlocking();
  with_hooks(&Work::hostSynchronize);
}

void Work::hostSynchronize() {
  block();
  if (error()) lane_->meet_failure();
  rethrowIfFailed();
}

}  // namespace torch::comms::nccl
