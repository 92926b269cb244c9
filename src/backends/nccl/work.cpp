#include "backends/nccl/work.hpp"

#include <utility>

#include "backends/nccl/call.hpp"
#include "core/bounded.hpp"

namespace torch::comms::nccl {
namespace {

// How often a blocked thread looks whether the user wants out (Ctrl-C).
constexpr std::chrono::milliseconds kTick{50};

}  // namespace

Work::Work(std::shared_ptr<Lane> lane, const Call& call, Lane::Slot slot,
           std::shared_ptr<gpu::EventPool::Lease> end, std::vector<c10::Storage> keep)
    : lane_(std::move(lane)),
      op_(opToString(call.op)),
      async_(call.async_op),
      limit_(call.limit),
      limit_text_(limit_text(call, "not finished")),
      stream_(slot.stream),
      capture_(slot.capture),
      end_(std::move(end)),
      started_(std::move(slot.started)),
      keep_(std::move(keep)) {}

void Work::wait() {
  runWaitPreHooks();
  try {
    settle();
  } catch (...) {
    runWaitPostHooks();
    throw;
  }
  runWaitPostHooks();
}

void Work::settle() {
  const auto& device = lane_->device();
  // Before anything else: behind a failure there is nothing to wait for.
  auto failure = reason();
  if (!failure && device.host_runs()) {
    block();
    failure = reason();
  } else if (const auto current = device.current_stream(); !failure && current != stream_) {
    const Device::Scope scope(device);
    // A graph's operation is ordered inside of its capture alone.
    if (capture_ == 0 || device.runtime().capture_of(current) == capture_)
      device.runtime().wait(current, end_->get());
  }
  if (!failure) return;
  lane_->failure_was_met();
  std::rethrow_exception(failure);
}

std::exception_ptr Work::reason() const {
  if (status() == WorkStatus::COMPLETED) return nullptr;
  const auto own = error();
  return own ? own : lane_->communicator().failure().error();
}

void Work::block() {
  try {
    while (!waitForTerminal(kTick)) check_interrupt();
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  }
}

void Work::hostSynchronize() {
  block();
  rethrowIfFailed();
}

}  // namespace torch::comms::nccl
