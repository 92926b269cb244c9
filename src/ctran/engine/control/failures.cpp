#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/net/peer_error_text.hpp"
#include "base/os/log.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"
#include "monitor/abort_reason.hpp"

// How groups of an engine fail, and how their members are informed.
namespace torch::comms::ctran {
namespace {

constexpr size_t kMostEarly = 1024;

// Removes the rank from a link's text, which names ranks of the context: "rank 3: its process has
// ended".
std::string without_rank(const std::string& why) {
  const auto colon = why.find(": ");
  return why.starts_with("rank ") && colon != std::string::npos ? why.substr(colon + 2) : why;
}

std::vector<int> ranks_of(int member) {
  return member < 0 ? std::vector<int>() : std::vector{member};
}

}  // namespace

void Engine::on_task_failed(Task* task) noexcept {
  auto& group = *task->group;
  const auto failed = task->failure;
  const bool mismatch = failed.code == Errc::kMismatch;
  if (mismatch && task->is_queued)
    return start_failure(group, {{failed.code, failed.reason}, task->sequence}, task->sequence);
  const monitor::AbortReason why{failed.code, failed.reason, ranks_of(failed.peer)};
  if (mismatch && !failed.is_closed_by_peer) return start_failure(group, {why}, 0);
  // Before its end, the peer may have sent a leave message or the reason of its failure.
  poll_control();
  if (group.failure() != nullptr) return;
  if (group.left_members.contains(failed.peer) && task->can_outlive_left_peers() && !mismatch)
    return;  // advance() fails the task
  if (group.left_members.contains(failed.peer))
    return fail(group, {Errc::kPeerFailed, base::peer_closed_text(failed.peer), {failed.peer}});
  if (mismatch) return start_failure(group, {why, 0, failed.peer}, 0);
  const int peer = group.ranks[static_cast<size_t>(failed.peer)];
  if (const auto* failure = links_.failure(peer))
    on_peer_failed(peer, failure->code, failure->reason);
  if (group.pending) return;
  fail(group, {failed.code,
               "the " + std::string(links_.link_name(peer)) + " connection to rank " +
                   std::to_string(failed.peer) + " failed during " + std::string(task->name),
               {failed.peer}});
}

// The first error counts. complete_failed() completes the group's calls later, because the caller
// of fail() may be iterating over them.
void Engine::fail(GroupState& group, monitor::AbortReason why) noexcept {
  if (!group.set_failure(why.code, why.reason, why.culprits)) return;
  failed_groups_.push_back(&group);
  const bool is_common = why.code == Errc::kResourceExhausted;
  ControlMessage notice{.kind = ControlMessage::Kind::kFailed,
                        .base = group.base,
                        .failure = monitor::as_seen_by_peers(std::move(why), group.layout.rank),
                        .has_progress_report = group.pending.has_value()};
  // All members raise kResourceExhausted if one rank ran out of a resource.
  if (is_common) notice.failure.code = Errc::kResourceExhausted;
  broadcast(group, notice);
}

// Completes the messages of a failed group that are done. One link may deliver the last byte of a
// message and the failure at once, before the message's task advances.
void Engine::complete_finished_messages(GroupState& group) noexcept {
  std::vector<Task*> ended;
  std::erase_if(active_, [&](Task* task) {
    if (task->group.get() != &group || task->is_queued || group.is_held(*task)) return false;
    try {
      if (task->advance() != Task::TaskStatus::kDone) return false;
    } catch (const std::exception&) {
      return false;  // the task completes with the group's error
    }
    ended.push_back(task);
    return true;
  });
  for (auto* task : ended) {
    const auto keep = task->group;  // completing the task may release the group
    complete(task, nullptr);
  }
}

// Completes the calls of all groups that have failed. The links do not touch the memory of these
// calls any more.
void Engine::complete_failed() noexcept {
  for (auto* group : std::exchange(failed_groups_, {})) {
    complete_finished_messages(*group);
    const auto code = group->failure()->code();
    for (auto* link : links_.active())
      link->close_streams(group->base, group->base + GroupState::kStreams - 1, code);
    close_tag_streams(*group, code);
    std::vector<Task*> ended;
    std::erase_if(active_, [&](Task* task) {
      if (task->group.get() != group) return false;
      if (!task->is_queued) ended.push_back(task);
      return true;
    });
    ended.insert(ended.end(), group->queue.begin(), group->queue.end());
    group->queue.clear();
    group->pending.reset();
    for (auto* task : ended) complete(task, group->error_for(*task));
  }
}

void Engine::on_peer_failed(int context_rank, Errc code, const std::string& why) noexcept {
  for (auto& [base, group] : groups_) {
    const int rank = group->rank_of(context_rank);
    if (rank < 0 || group->left_members.contains(rank) || group->failure() != nullptr) continue;
    if (code == Errc::kPeerFailed) {
      group->monitor().on_peer_failed(rank, without_rank(why));
      follow_monitor(*group);
    } else if (!group->pending) {  // the peer itself may be fine
      fail(*group,
           {code,
            "this rank cannot reach rank " + std::to_string(rank) + ": " + without_rank(why),
            {group->layout.rank}});
    }
  }
}

// Returns: whether the group has a call in flight.
bool Engine::has_calls(const GroupState& group) const noexcept {
  return !group.queue.empty() || std::any_of(active_.begin(), active_.end(), [&](const Task* task) {
    return task->group.get() == &group;
  });
}

// Sends to the connected members except `excluded`. Receivers that forward messages reach the
// unconnected ones.
void Engine::broadcast(GroupState& group, const ControlMessage& notice, int excluded) noexcept {
  for (const int member : group.ranks)
    if (member != links_.rank() && member != excluded) send_control(member, notice);
}

// Sends nothing if the peer is not connected or its link has failed.
void Engine::send_control(int context_rank, const ControlMessage& notice) noexcept {
  if (!links_.is_connected(context_rank) || links_.failure(context_rank) != nullptr) return;
  try {
    control_channel_.send(context_rank, links_.link_to(context_rank), notice);
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kWarning, "cannot send a control message to rank " +
                                            std::to_string(context_rank) + ": " + error.what());
  }
}

void Engine::on_control_message(int from, const ControlMessage& notice) noexcept {
  const auto found = groups_.find(notice.base);
  auto* const known = found == groups_.end() ? nullptr : found->second.get();
  const int rank = known == nullptr ? -1 : known->rank_of(from);
  if (known != nullptr && rank < 0) return;
  if (notice.kind == ControlMessage::Kind::kMonitor && on_monitor_message(known, from, notice))
    return;
  if (notice.kind == ControlMessage::Kind::kTagStream &&
      (known == nullptr ? removed_streams_.contains(notice.base) : known->failure() != nullptr))
    return close_stream(static_cast<uint32_t>(notice.sequence), Errc::kFinalized);
  if (known == nullptr) {
    if (removed_streams_.contains(notice.base)) return;
    // The message is for a group that this rank is still creating.
    early_messages_.push_back({from, notice});
    if (early_messages_.size() > kMostEarly) early_messages_.pop_front();
    return;
  }
  auto& group = *known;
  if (group.failure() != nullptr) return;
  switch (notice.kind) {
    case ControlMessage::Kind::kFailed:
      return on_remote_failure(group, rank, notice);
    case ControlMessage::Kind::kCountsQuery:
      return on_counts_query(group, rank, notice);
    case ControlMessage::Kind::kLeaving:
      return on_leaving(group, rank, notice);
    case ControlMessage::Kind::kTagStream:
      return on_tag_stream(group, rank, notice);
    case ControlMessage::Kind::kQuiesced:
      return on_quiesced(group, from, notice);
    default:
      return;
  }
}

// A rank without a call in flight does not query the progress of its peers when it fails. If this
// rank has calls, it starts the query now.
void Engine::on_remote_failure(GroupState& group, int rank, const ControlMessage& notice) noexcept {
  auto why = notice.failure;
  std::erase_if(why.culprits, [&](int one) { return one < 0 || one >= group.size(); });
  // This rank's leave message caused the failure of the sender.
  if (group.has_announced_leave && std::ranges::count(why.culprits, group.layout.rank)) {
    // The failure may overtake messages that the failed rank had sent: they still arrive. The rank
    // sends nothing more, as if it had left the group.
    if (group.queue.empty()) {
      const auto entry = group.left_members.insert_or_assign(rank, GroupState::GroupLeave{});
      if (is_draining(group)) return;
      group.left_members.erase(entry.first);
    }
    return fail(group, {why.code, "rank " + std::to_string(rank) + ": " + why.reason, {rank}});
  }
  if (group.pending) group.pending->replace_reason(rank, why);
  if (why.code != Errc::kPeerFailed || notice.has_progress_report || !has_calls(group))
    return fail(group, std::move(why));
  start_failure(group, {std::move(why)}, group.running());
}

void Engine::on_leaving(GroupState& group, int rank, const ControlMessage& notice) noexcept {
  group.left_members[rank] = {notice.sequence, notice.has_open_receives};
  if (group.pending)
    group.pending->replace_reason(rank, {Errc::kPeerFailed, base::peer_closed_text(rank), {rank}});
  if (auto* monitor = group.existing_monitor()) {
    monitor->on_peer_closed(rank);
    follow_monitor(group);
  }
  fail_for_left_members(group);
}

// Forwards the message, so that members without a connection to the quiesced rank receive it.
void Engine::on_quiesced(GroupState& group, int from, const ControlMessage& notice) noexcept {
  const int rank = group.rank_of(notice.subject);
  if (rank < 0 || rank >= 32) return;
  const uint32_t bit = uint32_t{1} << rank;
  const bool was_known = (group.quiesced.fetch_or(bit, std::memory_order_release) & bit) != 0;
  if (!was_known) broadcast(group, notice, from);
}

// Fails the group if its running collective needs a member that has left before it.
void Engine::fail_for_left_members(GroupState& group) noexcept {
  if (group.pending || group.queue.empty()) return;
  for (const auto& [rank, leave] : group.left_members) {
    if (group.queue.front()->sequence <= leave.last_collective) continue;
    if (is_draining(group)) return;
    return fail(group, {Errc::kPeerFailed,
                        base::peer_closed_text(rank) + ", after its collective number " +
                            std::to_string(leave.last_collective),
                        {rank}});
  }
}

bool Engine::is_draining(const GroupState& group) const noexcept {
  return std::any_of(active_.begin(), active_.end(), [&](const Task* task) {
    return task->group.get() == &group && task->is_draining();
  });
}

// The receiver may have nothing to send in the exchange, so that the sender would never see a
// message of it.
void Engine::on_counts_query(GroupState& group, int rank, const ControlMessage& query) noexcept {
  if (group.fingerprint(query.sequence).sequence != query.sequence) return;
  const auto observation = group.describe_count_mismatch(rank, query);
  if (!observation.empty())
    start_failure(group, {{Errc::kMismatch, observation}, query.sequence}, query.sequence);
}

}  // namespace torch::comms::ctran
