#include <algorithm>
#include <string>
#include <utility>

#include "base/os/log.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"
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
  start_failure(group, found, group.running());
}

// Stops the group's calls. The group fails when the monitor knows the progress of all ranks that
// answer in time. `closed_by`: see GroupState::PendingFailure.
void Engine::start_failure(GroupState& group, monitor::AbortReason why, uint64_t number,
                           int closed_by) noexcept {
  if (group.pending || group.failure() != nullptr) return;
  group.pending = {std::move(why), closed_by};
  group.monitor().query_progress(number);
  follow_monitor(group);
}

void Engine::finish_failure(GroupState& group) noexcept {
  const auto& monitor = group.monitor();
  auto why = group.pending->why;
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

// A group that has failed still answers queries.
void Engine::on_monitor_message(GroupState& group, int rank,
                                const ControlMessage& notice) noexcept {
  try {
    group.monitor().on_message(rank, MonitorMessage::parse(notice.monitor_message, group.size()));
    follow_monitor(group);
  } catch (const CommError&) {
    on_malformed_message(group.ranks[static_cast<size_t>(rank)]);
  }
}

// Answers a query about a group that this rank has not made yet, or has no longer.
// Returns: whether the message was a query, or can be ignored.
bool Engine::reply_without_group(int from, const ControlMessage& notice) noexcept {
  if (notice.kind != ControlMessage::Kind::kMonitor) return false;
  try {
    const auto message = MonitorMessage::parse(notice.monitor_message, links_.size());
    if (message.kind == MonitorMessage::Kind::kQuery)
      send_monitor_message(
          from, notice.base,
          {.kind = MonitorMessage::Kind::kReply, .group = message.group, .query = message.query});
    return message.kind == MonitorMessage::Kind::kQuery ||
           message.kind == MonitorMessage::Kind::kReply;
  } catch (const CommError&) {
    on_malformed_message(from);
    return true;
  }
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
