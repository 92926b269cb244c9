#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/nccl/api/nccl_api_backend.hpp"
#include "backends/nccl/api/nccl_options.hpp"
#include "backends/nccl/streams/launch_queue.hpp"
#include "backends/nccl/streams/nccl_call.hpp"
#include "backends/nccl/streams/nccl_device.hpp"
#include "base/os/log.hpp"
#include "core/comm/error_context.hpp"
#include "core/rendezvous/reconfiguration.hpp"
#include "core/rendezvous/rendezvous.hpp"
#include "core/rendezvous/store_adapter.hpp"
#include "core/work/abort_hook_runner.hpp"
#include "core/work/interruptible_call.hpp"
#include "monitor/monitor_network.hpp"

// NcclApiBackend: reconfigure() and what it needs.
namespace torch::comms {
namespace {

using nccl::Clock;
using nccl::LaunchQueue;

// How long synchronous operations in flight may take to finish, once all members are there.
constexpr std::chrono::seconds kReconfigureGrace{1};
constexpr std::chrono::milliseconds kReconfigureTick{20};

// Waits for synchronous operations in flight to finish by themselves, because no work would report
// that they were aborted.
// Throws: Interrupted.
void wait_for_sync_operations(LaunchQueue& queue, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  queue.poll(Clock::now());
  while (queue.has_pending_sync() && !queue.communicator().failure() && Clock::now() < end) {
    check_interrupt();
    queue.wait_idle(kReconfigureTick);
  }
  if (queue.has_pending_sync() && !queue.communicator().failure())
    base::log(
        base::LogLevel::kWarning,
        "communicator '" + queue.name() +
            "': reconfigure() aborts a synchronous operation that did not finish in time; its "
            "output is undefined");
}

CommError reconfigure_error(const Context& context) {
  return {Errc::kAborted, "reconfigure() was called", context};
}

// Aborts the operations in flight. Former members that do not take part learn of it.
void abort_for_reconfigure(LaunchQueue& queue, const Context& context) {
  if (!queue.is_idle() || queue.communicator().failure())
    queue.abort_and_wait(reconfigure_error(context), /*blocks=*/true);
  else
    queue.announce_abort(reconfigure_error(context));
}

// Checks through the store whether all members give the same `word`. `word` is empty if this member
// has none, for the reason `why_not`. `outcome` becomes the same text on all members.
// `interrupt_check`: see StoreKeyValue::get().
// Returns: true if they agree; the same value on all members.
bool agree_on_word(const std::string& word, const std::string& why_not,
                   const Rendezvous& rendezvous, std::string& outcome, const Context& context,
                   const std::function<void()>& interrupt_check) {
  StoreKeyValue store(rendezvous.store, rendezvous.deadline, context, rendezvous.address);
  const std::string scope = "shrink/", all = "all of them";
  const auto word_key = scope + "say/" + word;
  if (word.empty())
    store.set(scope + "why", "rank " + std::to_string(rendezvous.rank) + ": " + why_not);
  else
    store.add(word_key, 1);
  // The last member decides for all.
  if (store.add(scope + "spoken", 1) == rendezvous.size) {
    const bool same = !word.empty() && store.add(word_key, 0) == rendezvous.size;
    if (same)
      outcome = all;
    else if (store.has({scope + "why"}))
      outcome = store.get(scope + "why", rendezvous.deadline.remaining());
    else
      outcome = "the members were ranks of different communicators";
    store.set(scope + "verdict", outcome);
  } else {
    outcome = store.get(scope + "verdict", rendezvous.deadline.remaining(), interrupt_check);
  }
  return outcome == all;
}

}  // namespace

void NcclApiBackend::init_without_members(at::Device device) {
  // Opened now, so that an invalid device is refused before a peer waits for this member.
  with_context([&] { return Context{.op = "new_comm", .comm = name_}; },
               [&] {
                 device_ = nccl::NcclDevice::open(*library_, device, std::nullopt,
                                                  nccl_options_->high_priority_stream,
                                                  nccl_options_->max_events)
                               ->torch_device();
               });
}

InitHandle NcclApiBackend::getInitHandle() const {
  return Reconfiguration::require(reconfiguration_,
                                  {.op = "get_init_handle", .comm = name_, .rank = rank_})
      .handle();
}

CommError NcclApiBackend::explain_error(const CommError& error) {
  const bool is_peer_error = error.code() == Errc::kPeerFailed || error.code() == Errc::kTimeout ||
                             error.code() == Errc::kVendor;
  if (reconfiguration_ && is_peer_error)
    if (const auto stale = reconfiguration_->check_excluded(error.context())) return *stale;
  return error;
}

WorkPtr NcclApiBackend::reconfigure(const ReconfigureOptions& options) {
  const Context context{.op = "reconfigure", .comm = name_, .rank = rank_};
  auto& reconfiguration = Reconfiguration::require(reconfiguration_, context);
  const auto members = reconfiguration.parse_members(options, options_.timeout);
  auto merged = options_;
  for (const auto& [key, value] : options.hints) merged.hints[key] = value;
  with_context(context, [&] {
    parse_options(merged);
    nccl::make_config(merged.hints);
    nccl::require_supported_hints(*library_, merged.hints);
    *nccl_options_ = nccl::parse_nccl_options(merged);
  });
  options_ = std::move(merged);

  auto* const parent = launch_queue_.get();  // `before` keeps it alive
  const auto detach_members = [&] {
    rank_ = size_ = -1;
    identity_ = 0;
    ranks_.clear();
    pair_store_.reset();
    return detach();
  };
  // Former members that do not take part keep using the monitor group until stop_all().
  auto group_monitor = std::exchange(group_monitor_, nullptr);
  auto before = detach_members();
  // The caller of reconfigure() needs no abort hook for it.
  const bool hooks_canceled = abort_hook_runner_->cancel();
  const auto wait_for_all = [&](std::chrono::milliseconds limit) {
    for (const auto& queue : before) wait_for_sync_operations(*queue, limit);
  };
  const auto stop_all = [&] {
    for (const auto& queue : before) abort_for_reconfigure(*queue, context);
    if (group_monitor) group_monitor->close();
    if (!hooks_canceled) abort_hook_runner_->rearm();
  };
  WorkPtr work;
  try {
    work = reconfiguration.run(members, [&](const Rendezvous& rendezvous) {
      // All members that take part have left their last operation. When they have connected again,
      // they need no memory of the former communicator.
      wait_for_all(kReconfigureGrace);
      connect_members(device_, rendezvous, [&](const nccl::WaitOptions& wait, const auto& device) {
        auto communicator = shrink(parent, members, rendezvous, wait, device);
        stop_all();
        return communicator;
      });
    });
    wait_for_all({});
    stop_all();
  } catch (...) {
    for (const auto& queue : before) queue->announce_abort(reconfigure_error(context));
    if (group_monitor) group_monitor->close();
    release(std::move(before), /*may_block=*/false);
    throw;
  }
  release(std::move(before), /*may_block=*/true);
  if (work->isCompleted()) {
    {
      const std::lock_guard lock(mutex_);
      failure_.reset();
    }
    abort_hook_runner_->rearm();
  } else {
    // If this rank was connected when an abort() came, it closes the monitor group in good order.
    // Otherwise destroying the group notifies the peers that this rank is not a member.
    if (launch_queue_) close_group_monitor();
    group_monitor_.reset();
    release(detach_members(), /*may_block=*/false);
  }
  return work;
}

std::shared_ptr<nccl::Communicator> NcclApiBackend::shrink(
    LaunchQueue* before, const ReconfigureMembers& members, const Rendezvous& rendezvous,
    const nccl::WaitOptions& wait, const std::shared_ptr<nccl::NcclDevice>& device) {
  connect_note_.clear();
  if (rendezvous.size < 2) return nullptr;
  const auto context = wait.context();
  const auto plan = reconfiguration_->shrink_plan(members);
  const auto why_not = [&]() -> std::string {
    if (before == nullptr) return "it has no communicator to shrink";
    if (!plan.not_shrinkable_reason.empty()) return plan.not_shrinkable_reason;
    if (library_->CommShrink == nullptr)
      return library_->path() + ", version " + library_->version_text() +
             ", cannot shrink a communicator";
    // A nonblocking communicator may report an error when its operations are aborted.
    if (!before->communicator().is_blocking())
      return "its communicator is nonblocking (hint blocking=0)";
    if (!before->release_for_shrink(reconfigure_error(context)))
      return "its communicator has failed";
    return {};
  }();
  std::string outcome;
  const bool agreed = agree_on_word(why_not.empty() ? plan.parent_key : "", why_not, rendezvous,
                                    outcome, context, [&] { raise_peer_failure(context); });
  connect_note_ = agreed ? "by shrinking the previous one, without " +
                               std::to_string(plan.excluded_ranks.size()) + " of its ranks"
                         : "by a new connect: " + outcome;
  base::log(base::LogLevel::kDebug, "communicator '" + name_ +
                                        "': reconfigure() creates the library's communicator " +
                                        connect_note_);
  if (!agreed) return nullptr;
  return before->communicator().shrink(plan.excluded_ranks,
                                       nccl::make_config(options_.hints, name_),
                                       nccl::NcclDevice::make_current_function(device), wait);
}

}  // namespace torch::comms
