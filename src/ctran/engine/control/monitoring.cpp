#include <algorithm>
#include <string>
#include <utility>

#include "base/os/log.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"
#include "ctran/engine/task/collective_task.hpp"
#include "monitor/monitor_message.hpp"

// The monitors of the groups: how their messages travel, and what follows from what they find. The
// thread that makes progress on a rank answers for it; the context's progress thread does so while
// the program is busy elsewhere.
namespace torch::comms::ctran {

using monitor::MonitorMessage;

// Must follow each call of the group's monitor.
void Engine::follow_monitor(GroupState& group) noexcept {
  const auto& monitor = group.monitor();
  track_deadline(Deadline(monitor.next_time()));
  if (group.failure() != nullptr) return;
  if (const auto found = monitor.failure()) on_monitor_failure(group, *found);
  if (group.failure() == nullptr && group.pending && monitor.report()) finish_failure(group);
}

void Engine::on_monitor_failure(GroupState& group, const monitor::AbortReason& found) noexcept {
  if (group.pending && std::ranges::count(group.monitor().failed_ranks(), group.pending->closed_by))
    group.pending->replace_reason(group.pending->closed_by, found);
  if (found.code != Errc::kPeerFailed || (!group.pending && !has_calls(group)))
    return fail(group, found);
  start_failure(group, {found}, group.running());
}

// Stops the group's calls, until the monitor knows the progress of all ranks that answer in time,
// or what they have called. Of two mismatches the earlier one counts.
void Engine::start_failure(GroupState& group, PendingFailure failure, uint64_t number) noexcept {
  const uint64_t disputed = failure.held_from;
  const bool is_earlier = group.pending && disputed != 0 && disputed < group.pending->held_from;
  if (group.failure() != nullptr || (group.pending && !is_earlier)) return;
  group.pending = std::move(failure);
  if (disputed != 0)
    group.monitor().report_mismatch(disputed, group.pending->why.reason);
  else
    group.monitor().query_progress(number);
  follow_monitor(group);
}

void Engine::finish_failure(GroupState& group) noexcept {
  const auto& monitor = group.monitor();
  auto why = group.pending->why;
  if (why.reason.empty()) why.reason = "ranks disagree";
  why.reason += "; " + monitor.report()->text;
  if (why.culprits.empty()) why.culprits = monitor.report()->culprits;
  // Those that have failed since the first one.
  for (const int rank : monitor.failed_ranks())
    if (why.code == Errc::kPeerFailed && std::ranges::count(why.culprits, rank) == 0)
      why.culprits.push_back(rank);
  fail(group, std::move(why));
  base::log(base::LogLevel::kWarning, "communicator '" + group.name + "' (rank " +
                                          std::to_string(group.layout.rank) +
                                          ") has failed: " + group.failure()->why());
}

void Engine::check_late_call(CollectiveTask& task) noexcept {
  auto& group = *task.group;
  const auto began = task.idle_since.time_since_epoch();
  task.next_check = Deadline(group.monitor().check_mismatch_later(began));
  follow_monitor(group);
  if (!task.plan().has_own_counts()) return;
  const auto& problem = task.plan().problem();
  for (int rank = 0; rank < group.size(); ++rank)
    if (rank != group.layout.rank)
      send_control(group.ranks[static_cast<size_t>(rank)],
                   {.kind = ControlMessage::Kind::kCountsQuery,
                    .base = group.base,
                    .sequence = task.sequence,
                    .sent = problem.blocks.count(rank),
                    .expected = problem.receive_blocks.count(rank)});
}

// A group that has failed still answers queries. `group`: nullptr if this rank has not made the
// group yet, or has removed it; a query then gets an empty reply.
// Returns: false if the message must wait for the group.
bool Engine::on_monitor_message(GroupState* group, int from, const ControlMessage& notice) noexcept
    try {
  const auto message =
      MonitorMessage::parse(notice.monitor_message, group ? group->size() : links_.size());
  if (group != nullptr) {
    group->monitor().on_message(group->rank_of(from), message);
    return follow_monitor(*group), true;
  }
  if (message.kind != MonitorMessage::Kind::kQuery) return false;
  send_monitor_message(
      from, notice.base,
      {.kind = MonitorMessage::Kind::kReply, .group = message.group, .query = message.query});
  return true;
} catch (const CommError&) {
  return on_malformed_message(from), true;
}

void Engine::on_malformed_message(int from) noexcept {
  on_peer_failed(
      from, Errc::kPeerFailed,
      "protocol error in a control message; all ranks must run the same torchcomms version");
}

void Engine::send_monitor_message(int context_rank, uint32_t base,
                                  const MonitorMessage& message) noexcept {
  const bool is_lazy = monitor_topology() == monitor::MonitorTopology::kOverlay;
  if (is_lazy && !links_.is_connected(context_rank) && !monitor_links_.contains(context_rank)) {
    try {
      link_to(context_rank);
    } catch (const std::exception& error) {
      base::log(base::LogLevel::kWarning, "cannot connect to rank " + std::to_string(context_rank) +
                                              " for a message of the monitor: " + error.what());
    }
    monitor_links_.insert(context_rank);
  }
  send_control(context_rank, {.kind = ControlMessage::Kind::kMonitor,
                              .base = base,
                              .monitor_message = message.serialize()});
}

}  // namespace torch::comms::ctran
