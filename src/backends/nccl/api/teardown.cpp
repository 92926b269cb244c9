#include <algorithm>
#include <utility>

#include "backends/common/peer_monitor.hpp"
#include "backends/nccl/api/nccl_api_backend.hpp"
#include "backends/nccl/api/nccl_options.hpp"
#include "backends/nccl/api/persistent_all_gather.hpp"
#include "backends/nccl/streams/launch_queue.hpp"
#include "backends/nccl/streams/nccl_call.hpp"
#include "base/os/env.hpp"
#include "base/os/fork.hpp"
#include "base/os/log.hpp"
#include "core/comm/error_context.hpp"
#include "core/rendezvous/reconfiguration.hpp"
#include "core/work/abort_hook_runner.hpp"
#include "core/work/deferred_teardown.hpp"
#include "core/work/interruptible_call.hpp"

// How a rank leaves a communicator: finalize(), abort() and the destructor.
namespace torch::comms {
namespace {

using nccl::Clock;
using nccl::NcclCall;

constexpr const char* kTeardownVariable = "TORCHCOMM_TEARDOWN_TIMEOUT_SECONDS";
// How long finalize() waits for the graphs that hold operations of the communicator.
constexpr std::chrono::seconds kGraphReleaseTimeout{2};
// How often a blocked thread checks for Ctrl-C.
constexpr std::chrono::milliseconds kTeardownPollInterval{50};

}  // namespace

NcclApiBackend::~NcclApiBackend() {
  if (fork_generation_ != base::fork_generation()) {
    // The communicator's threads, and the library's, exist only in the parent process. So
    // everything leaks.
    static_cast<void>(new std::shared_ptr<nccl::LaunchQueue>(std::move(launch_queue_)));
    static_cast<void>(new auto(std::move(peer_queues_)));
    static_cast<void>(pair_store_.release());
    static_cast<void>(reconfiguration_.release());
    static_cast<void>(new at::Tensor(std::move(barrier_tensor_)));
    static_cast<void>(new auto(std::move(persistent_)));
    static_cast<void>(new auto(std::move(group_monitor_)));
    return;
  }
  // The caller may hold locks that the library's threads need, such as Python's, so this must not
  // block. Peers are notified when operations in flight are done and nothing holds the monitor
  // group any more.
  release(detach(), /*may_block=*/false);
}

NcclApiBackend::LaunchQueues NcclApiBackend::detach() {
  LaunchQueues queues;
  const std::lock_guard lock(mutex_);
  for (auto& [peer, queue] : std::exchange(peer_queues_, {})) queues.push_back(std::move(queue));
  if (!launch_queue_) return queues;
  if (const auto failed = launch_queue_->communicator().failure().reason()) failure_ = failed;
  queues.push_back(std::exchange(launch_queue_, nullptr));
  return queues;
}

void NcclApiBackend::release(LaunchQueues queues, bool may_block) {
  for (auto& queue : queues) {
    queue->replay_monitor().stop();  // else the watchdog would keep the queue alive
    const auto in_flight = queue->in_flight();
    // Operations in flight may finish; then the library's communicator is destroyed with its last
    // owner.
    auto release_queue = [queue = std::move(queue)]() mutable {
      queue->announce_abort(
          {Errc::kFinalized, "the communicator was destroyed without finalize()"});
      queue.reset();
    };
    teardown_async(in_flight, std::move(release_queue), may_block);
  }
}

void NcclApiBackend::finalize() {
  NcclCall now{OpName::finalize, name_, rank_, options_.timeout, false, false};
  now.timeout_setting = kTeardownVariable;
  if (const auto limit = base::env_seconds(kTeardownVariable)) now.timeout = *limit;
  try {
    for (const auto& [peer, queue] : peer_queues_) close_queue(*queue, now);
    if (launch_queue_) close_queue(*launch_queue_, now);
  } catch (...) {
    // The abort must come before the monitor group is closed in good order.
    if (launch_queue_)
      launch_queue_->abort_and_wait({Errc::kAborted, "finalize() was interrupted", now.context()},
                                    /*blocks=*/false);
    teardown();
    throw;
  }
  teardown();
}

void NcclApiBackend::wait_idle() const {
  for (const auto& queue : launch_queues()) queue->in_flight()->wait_idle();
}

bool NcclApiBackend::may_still_run() const {
  return std::ranges::any_of(launch_queues(),
                             [](const auto& queue) { return queue->has_been_captured(); });
}

void NcclApiBackend::close_group_monitor() noexcept {
  if (group_monitor_) group_monitor_->close();
  group_monitor_.reset();
}

void NcclApiBackend::teardown() {
  close_group_monitor();
  release(detach(), /*may_block=*/true);
  pair_store_.reset();
  barrier_tensor_ = at::Tensor();
  persistent_.clear();
  if (reconfiguration_) reconfiguration_->close();
  is_finalized_ = true;
}

void NcclApiBackend::close_queue(nccl::LaunchQueue& queue, const NcclCall& call) {
  while (!queue.wait_idle(kTeardownPollInterval)) {
    check_interrupt_unwrapped();
    // Operations may never finish if the library cannot abort.
    if (queue.communicator().failure() && library_->CommAbort == nullptr) break;
  }
  // The wait queue shares the communicator with the operations, whose queue closes it.
  if (&queue != launch_queue_.get() && launch_queue_ &&
      &queue.communicator() == &launch_queue_->communicator())
    return;
  if (!queue.communicator().failure()) return close_communicator(queue, call);
  const auto all = launch_queues();
  if (std::ranges::none_of(all, [](const auto& one) { return one->is_failure_observed(); }))
    queue.communicator().failure().check();
}

// Closes the communicator. The library keeps it as long as graphs hold its operations.
void NcclApiBackend::close_communicator(nccl::LaunchQueue& queue, const NcclCall& call) {
  auto wait = nccl::launch_wait(call);
  wait.timeout_text = [&call] { return nccl::format_timeout_error(call, "not finished"); };
  // The library would wait for peers that have aborted the communicator. A rank that leaves with
  // nothing in flight gets no abort hook.
  wait.interrupt_check = [this, &queue, &call] {
    check_interrupt();
    if (!queue.peer_monitor().is_aborted_by_peer()) return;
    abort_hook_runner_->cancel();
    queue.abort_if_peer_failed([&call] { return call.context(); });
  };
  if (queue.has_live_graphs())
    wait.deadline = std::min(wait.deadline, Clock::now() + kGraphReleaseTimeout);
  try {
    wait.interrupt_check();
    queue.communicator().failure().check();
    queue.registrations().clear(queue.communicator(), wait);
    queue.windows().clear(queue.communicator(), wait);
    queue.communicator().close(wait);
  } catch (const Interrupted& e) {
    e.rethrow_cause();
  } catch (const CommError& e) {
    if (queue.peer_monitor().is_aborted_by_peer()) return;
    if (e.code() != Errc::kTimeout || !queue.has_live_graphs()) {
      // A background thread may still be in the library, and peers may wait for this rank.
      const auto why = with_peer_progress(e, queue);
      queue.abort_and_wait(why, /*blocks=*/false);
      throw CommError(why);
    }
    base::log(
        base::LogLevel::kInfo,
        "communicator '" + name_ +
            "' is finalized; its memory is kept until the CUDA graphs with its operations are "
            "destroyed");
  }
}
void NcclApiBackend::abort() {
  // Called first: a reconfigure() that connects before this has its LaunchQueue in place.
  if (reconfiguration_) reconfiguration_->abort();
  std::shared_ptr<nccl::LaunchQueue> queue;
  {
    const std::lock_guard lock(mutex_);
    queue = launch_queue_;
    if (!queue && reconfiguration_)
      failure_ = CommError(Errc::kAborted, "abort() was called", {.op = "abort", .comm = name_});
  }
  if (!queue) return;
  if (library_->CommAbort == nullptr)
    throw CommError(Errc::kUnsupported,
                    std::string(vendor_.library) + " " + library_->version_text() +
                        " cannot abort its communicators",
                    {.op = "abort", .comm = name_, .rank = rank_});
  // The caller of abort() knows of the failure.
  if (!queue->communicator().failure()) queue->mark_failure_observed();
  queue->abort_and_wait(
      {Errc::kAborted, "abort() was called", {.op = "abort", .comm = name_, .rank = rank_}},
      /*blocks=*/true);
  queue->mark_failure_observed();  // by the caller of abort()
}
}  // namespace torch::comms
