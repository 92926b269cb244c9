#include "backends/nccl/vendor_backend.hpp"

#include <algorithm>
#include <utility>

#include "backends/beside/collective_log.hpp"
#include "backends/beside/peer_monitor.hpp"
#include "backends/nccl/call.hpp"
#include "backends/nccl/hints.hpp"
#include "backends/nccl/lane.hpp"
#include "backends/nccl/persistent.hpp"
#include "base/fork.hpp"
#include "base/op_order.hpp"
#include "core/abort_hook_runner.hpp"
#include "core/cpu_backend.hpp"
#include "core/interruptible_call.hpp"
#include "core/reconfiguration.hpp"

namespace torch::comms {

using nccl::Call;
using nccl::Clock;

TorchCommVendor::TorchCommVendor(const nccl::Vendor& vendor, std::string backend)
    : vendor_(vendor),
      backend_(std::move(backend)),
      device_(nccl::device_type_of(vendor)),
      wishes_(std::make_unique<nccl::Wishes>()),
      hooks_(std::make_shared<AbortHookRunner>()),
      fork_generation_(base::fork_generation()) {}

TorchCommVendor::Lanes TorchCommVendor::lanes() const {
  const std::lock_guard lock(mutex_);
  Lanes all;
  if (lane_) all.push_back(lane_);
  for (const auto& [peer, lane] : pairs_) all.push_back(lane);
  return all;
}

// One that was taken away before says nothing of those that are here.
void TorchCommVendor::lane_failed(const nccl::Lane& lane, const CommError& why) {
  begin_hooks();
  const auto all = lanes();
  if (std::ranges::none_of(all, [&](const auto& one) { return one.get() == &lane; })) return;
  for (const auto& one : all) one->end(why);
}

void TorchCommVendor::begin_hooks() noexcept {
  hooks_->start([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->runAbortHooks();
  });
}

void TorchCommVendor::announceAbort() noexcept {
  begin_hooks();
  hooks_->wait_until_done();
}

std::shared_ptr<OperationObserver> TorchCommVendor::operation_observer() { return record_; }

void TorchCommVendor::registerGraphReplayHook(int64_t id, GraphReplayHook hook) {
  TorchCommBackend::registerGraphReplayHook(id, std::move(hook));
  tells_replays_ = true;
  for (const auto& lane : lanes()) lane->replays().collect_events();
}

nccl::Lane& TorchCommVendor::lane_of_waits() {
  if (auto* const found = lane_of_waits_if_any()) return *found;
  const nccl::Device::DeviceCallGuard as_before(lane_->device());
  return add_pair(
      kWaits, make_lane(lane_->shared_communicator(),
                        nccl::Device::open(*library_, device_, rank_, wishes_->high_priority_stream,
                                           wishes_->most_events)));
}

nccl::Lane& TorchCommVendor::add_pair(int peer, std::shared_ptr<nccl::Lane> lane) {
  auto& added = *lane;
  const std::lock_guard lock(mutex_);
  pairs_[peer] = std::move(lane);
  return added;
}

nccl::Lane* TorchCommVendor::lane_of_waits_if_any() const {
  const auto found = pairs_.find(kWaits);
  return found == pairs_.end() ? nullptr : found->second.get();
}

std::map<std::string, uint64_t> TorchCommVendor::memory_usage() const {
  std::map<std::string, uint64_t> bytes{{"communicator", library_bytes_}};
  if (lane_) bytes["registered tensors"] = lane_->registrations().size_bytes();
  return bytes;
}

std::map<std::string, std::string> TorchCommVendor::describe_entries() const {
  std::map<std::string, std::string> notes;
  if (!lane_) return notes;
  const auto& why_not = lane_->replays().why_not();
  notes["replays of graphs"] =
      why_not.empty() ? "operations in them have their limits" : "not watched: " + why_not;
  if (!made_how_.empty()) notes["reconfigure"] = "the library's communicator is made " + made_how_;
  if (circle_)
    notes["side channel"] = common::describe_monitor(wishes_->beside);
  else if (size_ > 1)
    notes["side channel"] = "none; ranks of this host are seen by their records";
  return notes;
}

int TorchCommVendor::getRank() const {
  require_not_finalized("get_rank");
  return rank_;
}
int TorchCommVendor::getSize() const {
  require_not_finalized("get_size");
  return size_;
}

void TorchCommVendor::require_not_finalized(const char* op) const {
  if (is_finalized_)
    throw CommError(Errc::kFinalized, "the communicator is not initialized: finalize() was called",
                    {.op = op, .comm = name_});
}

std::string_view TorchCommVendor::getBackendVersion() const { return version_; }

Capabilities TorchCommVendor::capabilities() const {
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

Call TorchCommVendor::call(OpName op, bool async_op, const OperationOptions& options,
                           std::string_view name) {
  const bool own = options.timeout.count() > 0;
  Call call{op, name_, rank_, own ? options.timeout : options_.timeout, own, async_op, false, name};
  // For those that are called on the backend itself.
  if (fork_generation_ != base::fork_generation())
    throw CommError(Errc::kForked, "this communicator belongs to the parent process",
                    call.context());
  if (!lane_)
    throw CommError(Errc::kFinalized, "the communicator is not initialized", call.context());
  if (reconfiguration_ && reconfiguration_->is_excluded())
    throw CommError(*reconfiguration_->check_excluded(call.context()));
  if (circle_ && circle_->has_failure()) lane_->end_if_told([&call] { return call.context(); });
  raise_failure(*lane_);
  if (wishes_->beside.check_before_start && circle_) check(call);
  try {
    before_operation(call);
  } catch (const Interrupted& e) {
    interrupted(e, call, *lane_);
  } catch (const CommError& e) {
    failed(e, call, *lane_);
  }
  return call;
}

void TorchCommVendor::check(const Call& call) {
  if (!base::is_collective_sequence(call.number)) return;
  const auto context = [&call] { return call.context(); };
  const auto look = [&] {
    check_interrupt();
    lane_->end_if_told(context);
    raise_failure(*lane_);
  };
  try {
    const auto where =
        lane_->others().consistency_barrier(call.number, Clock::now() + call.limit, look);
    if (!where) return;
    lane_->fail({Errc::kTimeout,
                 nccl::limit_text(call, "not begun: not every rank has called it") + where->text,
                 call.context(where->culprits)},
                /*blocks=*/false);
    raise_failure(*lane_);
  } catch (const Interrupted& e) {
    interrupted(e, call, *lane_);
  }
}

void TorchCommVendor::setTimeout(std::chrono::milliseconds timeout) {
  options_.timeout = timeout_or_default(timeout);
  for (const auto& lane : lanes()) lane->replays().set_default_limit(options_.timeout);
}

// While the library waits for other ranks outside of an operation, where no watchdog looks.
nccl::WaitOptions TorchCommVendor::wait_of(const Call& now) const {
  auto wait = nccl::launch_wait(now);
  wait.timeout_text = [&now] { return nccl::limit_text(now, "not finished"); };
  wait.interrupt_check = [this, &now] {
    check_interrupt();
    lane_->end_if_told([&now] { return now.context(); });
  };
  return wait;
}

void TorchCommVendor::raise_failure(nccl::Lane& lane) {
  const auto& failure = lane.communicator().failure();
  if (!failure) return;
  lane.meet_failure();
  try {
    failure.check();
  } catch (const CommError& e) {
    throw explained(e);
  }
}

void TorchCommVendor::failed(const CommError& error, const Call& call, nccl::Lane& lane) {
  const auto told = located(nccl::with_context(error, call), lane);
  const bool refused = error.code() == Errc::kUnsupported ||
                       error.code() == Errc::kInvalidArgument || error.code() == Errc::kFinalized;
  // A call of the library that went wrong leaves the ranks at different places.
  if (!refused) lane.fail(told, /*blocks=*/false);
  // The first reason: what this call met may have come of it.
  raise_failure(lane);
  throw explained(told);
}

CommError TorchCommVendor::located(const CommError& error, nccl::Lane& lane) {
  if (error.code() != Errc::kTimeout || lane.communicator().failure()) return error;
  const auto where = lane.others().wait_for_progress();
  auto context = error.context();
  context.culprits = where.culprits;
  return {error.code(), error.why() + where.text, context};
}

void TorchCommVendor::interrupted(const Interrupted& by, const Call& call, nccl::Lane& lane) {
  // Some ranks may have begun it.
  lane.fail({Errc::kAborted, "the call was interrupted", call.context()}, /*blocks=*/false);
  by.rethrow_cause();
}

bool TorchCommVendor::isAborted() const {
  const auto has_failed = [](const auto& lane) { return bool(lane->communicator().failure()); };
  if (std::ranges::any_of(lanes(), has_failed)) return true;
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

std::optional<CommError> TorchCommVendor::failure() const {
  for (const auto& lane : lanes())
    if (auto why = lane->failure({.comm = name_, .rank = rank_})) return why;
  const std::lock_guard lock(mutex_);
  return lane_ ? std::nullopt : failure_;
}

int64_t TorchCommVendor::communicator_address() const {
  if (!lane_)
    throw CommError(Errc::kFinalized, "the communicator is not initialized",
                    {.op = "get_nccl_comm_ptr", .comm = name_});
  return reinterpret_cast<int64_t>(lane_->communicator().handle());
}

}  // namespace torch::comms
