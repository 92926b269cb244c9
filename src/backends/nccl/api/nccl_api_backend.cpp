#include "backends/nccl/api/nccl_api_backend.hpp"

#include <algorithm>
#include <utility>

#include "backends/common/collective_log.hpp"
#include "backends/common/peer_monitor.hpp"
#include "backends/nccl/api/nccl_options.hpp"
#include "backends/nccl/api/persistent_all_gather.hpp"
#include "backends/nccl/streams/launch_queue.hpp"
#include "backends/nccl/streams/nccl_call.hpp"
#include "base/op_order.hpp"
#include "base/os/fork.hpp"
#include "core/backend/cpu_backend.hpp"
#include "core/rendezvous/reconfiguration.hpp"
#include "core/work/abort_hook_runner.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {

using nccl::Clock;
using nccl::NcclCall;

NcclApiBackend::NcclApiBackend(const nccl::Vendor& vendor, std::string backend)
    : vendor_(vendor),
      backend_(std::move(backend)),
      device_(nccl::device_type_of(vendor)),
      nccl_options_(std::make_unique<nccl::NcclOptions>()),
      abort_hook_runner_(std::make_shared<AbortHookRunner>()),
      fork_generation_(base::fork_generation()) {}

NcclApiBackend::LaunchQueues NcclApiBackend::launch_queues() const {
  const std::lock_guard lock(mutex_);
  LaunchQueues all;
  if (launch_queue_) all.push_back(launch_queue_);
  for (const auto& [peer, queue] : peer_queues_) all.push_back(queue);
  return all;
}

// The failure of a queue that was detached before does not concern the current queues.
void NcclApiBackend::on_queue_failed(const nccl::LaunchQueue& queue, const CommError& why) {
  start_abort_hooks();
  const auto all = launch_queues();
  if (std::ranges::none_of(all, [&](const auto& one) { return one.get() == &queue; })) return;
  for (const auto& one : all) one->abort(why);
}

void NcclApiBackend::start_abort_hooks() noexcept {
  abort_hook_runner_->start([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->runAbortHooks();
  });
}

void NcclApiBackend::announceAbort() noexcept {
  start_abort_hooks();
  abort_hook_runner_->wait_until_done();
}

std::shared_ptr<OperationObserver> NcclApiBackend::operation_observer() { return collective_log_; }

void NcclApiBackend::registerGraphReplayHook(int64_t id, GraphReplayHook hook) {
  TorchCommBackend::registerGraphReplayHook(id, std::move(hook));
  has_replay_hooks_ = true;
  for (const auto& queue : launch_queues()) queue->replay_monitor().collect_events();
}

nccl::LaunchQueue& NcclApiBackend::wait_queue() {
  if (auto* const found = wait_queue_if_any()) return *found;
  const nccl::NcclDevice::DeviceCallGuard device_guard(launch_queue_->device());
  return add_pair(kWaitQueueKey,
                  make_launch_queue(launch_queue_->shared_communicator(),
                                    nccl::NcclDevice::open(*library_, device_, rank_,
                                                           nccl_options_->high_priority_stream,
                                                           nccl_options_->max_events)));
}

nccl::LaunchQueue& NcclApiBackend::add_pair(int peer, std::shared_ptr<nccl::LaunchQueue> queue) {
  auto& added = *queue;
  const std::lock_guard lock(mutex_);
  peer_queues_[peer] = std::move(queue);
  return added;
}

nccl::LaunchQueue* NcclApiBackend::wait_queue_if_any() const {
  const auto found = peer_queues_.find(kWaitQueueKey);
  return found == peer_queues_.end() ? nullptr : found->second.get();
}

std::map<std::string, uint64_t> NcclApiBackend::memory_usage() const {
  std::map<std::string, uint64_t> bytes{{"communicator", library_bytes_}};
  if (launch_queue_) bytes["registered tensors"] = launch_queue_->registrations().size_bytes();
  return bytes;
}

std::map<std::string, std::string> NcclApiBackend::describe_entries() const {
  std::map<std::string, std::string> notes;
  if (!launch_queue_) return notes;
  const auto& why_not = launch_queue_->replay_monitor().unavailable_reason();
  notes["replays of graphs"] =
      why_not.empty() ? "timeouts of operations are watched" : "not watched: " + why_not;
  if (!connect_note_.empty())
    notes["reconfigure"] = "the library's communicator was created " + connect_note_;
  if (group_monitor_)
    notes["side channel"] = common::describe_monitor(nccl_options_->monitor);
  else if (size_ > 1)
    notes["side channel"] = "off; exited ranks of this host are found by their event-ring files";
  return notes;
}

int NcclApiBackend::getRank() const {
  require_not_finalized("get_rank");
  return rank_;
}
int NcclApiBackend::getSize() const {
  require_not_finalized("get_size");
  return size_;
}

void NcclApiBackend::require_not_finalized(const char* op) const {
  if (is_finalized_)
    throw CommError(Errc::kFinalized, "the communicator is not initialized: finalize() was called",
                    {.op = op, .comm = name_});
}

std::string_view NcclApiBackend::getBackendVersion() const { return version_; }

Capabilities NcclApiBackend::capabilities() const {
  auto can = cpu_capabilities();
  can.devices.reset();
  can.devices.set(static_cast<size_t>(device_.type()));
  for (const auto op : {RedOpType::BAND, RedOpType::BOR, RedOpType::BXOR})
    can.reduce_ops.reset(static_cast<size_t>(op));
  can.any_source = false;
  can.self_messages = true;
  can.windows = library_ && library_->has_one_sided();
  can.graph_capture = true;
  can.ends_process = true;
  can.place_before_members = false;
  can.abort = can.reconfigure = !library_ || library_->CommAbort != nullptr;
  return can;
}

NcclCall NcclApiBackend::begin_call(OpName op, bool async_op, const OperationOptions& options,
                                    std::string_view name) {
  const bool own = options.timeout.count() > 0;
  NcclCall call{op,  name_,    rank_, own ? options.timeout : options_.timeout,
                own, async_op, false, name};
  // For callers that use the backend directly, not through TorchComm.
  if (fork_generation_ != base::fork_generation())
    throw CommError(Errc::kForked, "this communicator belongs to the parent process",
                    call.context());
  if (!launch_queue_)
    throw CommError(Errc::kFinalized, "the communicator is not initialized", call.context());
  if (reconfiguration_ && reconfiguration_->is_excluded())
    throw CommError(*reconfiguration_->check_excluded(call.context()));
  if (group_monitor_ && group_monitor_->has_failure())
    launch_queue_->abort_if_peer_failed([&call] { return call.context(); });
  raise_failure(*launch_queue_);
  if (nccl_options_->monitor.check_before_start && group_monitor_) check_mismatch(call);
  try {
    before_operation(call);
  } catch (const Interrupted& e) {
    abort_on_interrupt(e, call, *launch_queue_);
  } catch (const CommError& e) {
    throw_failure(e, call, *launch_queue_);
  }
  return call;
}

void NcclApiBackend::check_mismatch(const NcclCall& call) {
  if (!base::is_collective_sequence(call.sequence)) return;
  const auto context = [&call] { return call.context(); };
  const auto interrupt_check = [&] {
    check_interrupt();
    launch_queue_->abort_if_peer_failed(context);
    raise_failure(*launch_queue_);
  };
  try {
    const auto where = launch_queue_->peer_monitor().consistency_barrier(
        call.sequence, Clock::now() + call.timeout, interrupt_check);
    if (!where) return;
    launch_queue_->abort_and_wait(
        {Errc::kTimeout,
         nccl::format_timeout_error(call, "not begun: some ranks have not called it") + where->text,
         call.context(where->culprits)},
        /*blocks=*/false);
    raise_failure(*launch_queue_);
  } catch (const Interrupted& e) {
    abort_on_interrupt(e, call, *launch_queue_);
  }
}

void NcclApiBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_.timeout = timeout_or_default(timeout);
  for (const auto& queue : launch_queues())
    queue->replay_monitor().set_default_timeout(options_.timeout);
}

// For waits of the library outside of an operation, which no watchdog observes.
nccl::WaitOptions NcclApiBackend::make_wait(const NcclCall& now) const {
  auto wait = nccl::launch_wait(now);
  wait.timeout_text = [&now] { return nccl::format_timeout_error(now, "not finished"); };
  wait.interrupt_check = [this, &now] {
    check_interrupt();
    launch_queue_->abort_if_peer_failed([&now] { return now.context(); });
  };
  return wait;
}

void NcclApiBackend::raise_failure(nccl::LaunchQueue& queue) {
  const auto& failure = queue.communicator().failure();
  if (!failure) return;
  queue.mark_failure_observed();
  try {
    failure.check();
  } catch (const CommError& e) {
    throw explain_error(e);
  }
}

void NcclApiBackend::throw_failure(const CommError& error, const NcclCall& call,
                                   nccl::LaunchQueue& queue) {
  const auto reported = with_peer_progress(nccl::with_context(error, call), queue);
  const bool refused = error.code() == Errc::kUnsupported ||
                       error.code() == Errc::kInvalidArgument || error.code() == Errc::kFinalized;
  // After a failed library call the ranks may be at different operations.
  if (!refused) queue.abort_and_wait(reported, /*blocks=*/false);
  // The first error is raised, because the error of this call may be its consequence.
  raise_failure(queue);
  throw explain_error(reported);
}

CommError NcclApiBackend::with_peer_progress(const CommError& error, nccl::LaunchQueue& queue) {
  if (error.code() != Errc::kTimeout || queue.communicator().failure()) return error;
  const auto where = queue.peer_monitor().wait_for_progress();
  auto context = error.context();
  context.culprits = where.culprits;
  return {error.code(), error.why() + where.text, context};
}

void NcclApiBackend::abort_on_interrupt(const Interrupted& interrupt, const NcclCall& call,
                                        nccl::LaunchQueue& queue) {
  // Some ranks may have begun the operation.
  queue.abort_and_wait({Errc::kAborted, "the call was interrupted", call.context()},
                       /*blocks=*/false);
  interrupt.rethrow_cause();
}

bool NcclApiBackend::isAborted() const {
  const auto has_failed = [](const auto& queue) { return bool(queue->communicator().failure()); };
  if (std::ranges::any_of(launch_queues(), has_failed)) return true;
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

std::optional<CommError> NcclApiBackend::failure() const {
  for (const auto& queue : launch_queues())
    if (auto why = queue->failure({.comm = name_, .rank = rank_})) return why;
  const std::lock_guard lock(mutex_);
  return launch_queue_ ? std::nullopt : failure_;
}

int64_t NcclApiBackend::communicator_address() const {
  if (!launch_queue_)
    throw CommError(Errc::kFinalized, "the communicator is not initialized",
                    {.op = "get_nccl_comm_ptr", .comm = name_});
  return reinterpret_cast<int64_t>(launch_queue_->communicator().handle());
}

}  // namespace torch::comms
