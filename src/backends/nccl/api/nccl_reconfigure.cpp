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
void wait_for_sync_operations(LaunchQueue& lane, std::chrono::milliseconds patience) {
  const auto end = Clock::now() + patience;
  lane.poll(Clock::now());
  while (lane.has_pending_sync() && !lane.communicator().failure() && Clock::now() < end) {
    check_interrupt();
    lane.wait_idle(kReconfigureTick);
  }
  if (lane.has_pending_sync() && !lane.communicator().failure())
    base::log(
        base::LogLevel::kWarning,
        "communicator '" + lane.name() +
            "': reconfigure() aborts a synchronous operation that did not finish in time; its "
            "output is undefined");
}

CommError reconfigure_error(const Context& context) {
  return {Errc::kAborted, "reconfigure() was called", context};
}

// Aborts the operations in flight. Former members that do not take part learn of it.
void abort_for_reconfigure(LaunchQueue& lane, const Context& context) {
  if (!lane.is_idle() || lane.communicator().failure())
    lane.abort_and_wait(reconfigure_error(context), /*blocks=*/true);
  else
    lane.announce_abort(reconfigure_error(context));
}

// Checks through the store whether all members give the same `word`. `word` is empty if this member
// has none, for the reason `why_not`. `verdict` becomes the same text on all members. `look`: see
// StoreKeyValue::get().
// Returns: true if they agree; the same value on all members.
bool agree_on_word(const std::string& word, const std::string& why_not, const Rendezvous& met,
                   std::string& verdict, const Context& context,
                   const std::function<void()>& look) {
  StoreKeyValue store(met.store, met.deadline, context, met.address);
  const std::string scope = "shrink/", all = "all of them";
  const auto of_word = scope + "say/" + word;
  if (word.empty())
    store.set(scope + "why", "rank " + std::to_string(met.rank) + ": " + why_not);
  else
    store.add(of_word, 1);
  // The last member decides for all.
  if (store.add(scope + "spoken", 1) == met.size) {
    const bool same = !word.empty() && store.add(of_word, 0) == met.size;
    if (same)
      verdict = all;
    else if (store.has({scope + "why"}))
      verdict = store.get(scope + "why", met.deadline.remaining());
    else
      verdict = "the members were ranks of different communicators";
    store.set(scope + "verdict", verdict);
  } else {
    verdict = store.get(scope + "verdict", met.deadline.remaining(), look);
  }
  return verdict == all;
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
  const bool of_the_world = error.code() == Errc::kPeerFailed || error.code() == Errc::kTimeout ||
                            error.code() == Errc::kVendor;
  if (reconfiguration_ && of_the_world)
    if (const auto stale = reconfiguration_->check_excluded(error.context())) return *stale;
  return error;
}

WorkPtr NcclApiBackend::reconfigure(const ReconfigureOptions& options) {
  const Context context{.op = "reconfigure", .comm = name_, .rank = rank_};
  auto& reconfiguration = Reconfiguration::require(reconfiguration_, context);
  const auto members = reconfiguration.parse_members(options, options_.timeout);
  auto wished = options_;
  for (const auto& [key, value] : options.hints) wished.hints[key] = value;
  with_context(context, [&] {
    parse_options(wished);
    nccl::make_config(wished.hints);
    nccl::require_supported_hints(*library_, wished.hints);
    *nccl_options_ = nccl::parse_nccl_options(wished);
  });
  options_ = std::move(wished);

  auto* const parent = launch_queue_.get();  // `before` keeps it alive
  const auto part = [&] {
    rank_ = size_ = -1;
    identity_ = 0;
    ranks_.clear();
    pair_store_.reset();
    return detach();
  };
  // Former members that do not take part keep using the monitor group until stop_all().
  auto circle = std::exchange(group_monitor_, nullptr);
  auto before = part();
  // The caller of reconfigure() needs no abort hook for it.
  const bool was_told = abort_hook_runner_->cancel();
  const auto give_all_time = [&](std::chrono::milliseconds patience) {
    for (const auto& lane : before) wait_for_sync_operations(*lane, patience);
  };
  const auto stop_all = [&] {
    for (const auto& lane : before) abort_for_reconfigure(*lane, context);
    if (circle) circle->close();
    if (!was_told) abort_hook_runner_->rearm();
  };
  WorkPtr work;
  try {
    work = reconfiguration.run(members, [&](const Rendezvous& met) {
      // All members that take part have left their last operation. When they have connected again,
      // they need no memory of the former communicator.
      give_all_time(kReconfigureGrace);
      connect_members(device_, met, [&](const nccl::WaitOptions& wait, const auto& device) {
        auto made = shrink(parent, members, met, wait, device);
        stop_all();
        return made;
      });
    });
    give_all_time({});
    stop_all();
  } catch (...) {
    for (const auto& lane : before) lane->announce_abort(reconfigure_error(context));
    if (circle) circle->close();
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
    release(part(), /*may_block=*/false);
  }
  return work;
}

std::shared_ptr<nccl::Communicator> NcclApiBackend::shrink(
    LaunchQueue* before, const ReconfigureMembers& members, const Rendezvous& met,
    const nccl::WaitOptions& wait, const std::shared_ptr<nccl::NcclDevice>& device) {
  connect_note_.clear();
  if (met.size < 2) return nullptr;
  const auto context = wait.context();
  const auto fewer = reconfiguration_->shrink_plan(members);
  const auto why_not = [&]() -> std::string {
    if (before == nullptr) return "it has no communicator to shrink";
    if (!fewer.not_shrinkable_reason.empty()) return fewer.not_shrinkable_reason;
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
  std::string verdict;
  const bool can = agree_on_word(why_not.empty() ? fewer.parent_key : "", why_not, met, verdict,
                                 context, [&] { raise_peer_failure(context); });
  connect_note_ = can ? "by shrinking the previous one, without " +
                            std::to_string(fewer.excluded_ranks.size()) + " of its ranks"
                      : "by a new connect: " + verdict;
  base::log(base::LogLevel::kDebug, "communicator '" + name_ +
                                        "': reconfigure() creates the library's communicator " +
                                        connect_note_);
  if (!can) return nullptr;
  return before->communicator().shrink(fewer.excluded_ranks,
                                       nccl::make_config(options_.hints, name_),
                                       nccl::NcclDevice::make_current_function(device), wait);
}

}  // namespace torch::comms
