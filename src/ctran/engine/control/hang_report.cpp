#include <algorithm>
#include <string>

#include "base/os/log.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/group/group_state.hpp"

// The hang query: before a group fails, this rank asks its members how far they are. The thread
// that makes progress on each member answers; the context's progress thread does so while the
// program is busy elsewhere.
namespace torch::comms::ctran {

// Stops the group's calls. The group fails when all ranks have answered, or after query_timeout_.
void Engine::start_hang_query(GroupState& group, Errc code, std::string why,
                              std::vector<int> culprits, uint64_t number) noexcept {
  if (group.hang_query || group.failure() != nullptr) return;
  group.hang_query = std::make_unique<GroupState::HangQuery>();
  auto& query = *group.hang_query;
  query.code = code;
  query.reason = std::move(why);
  query.culprits = std::move(culprits);
  auto& seen = query.report;
  seen.size = group.size();
  seen.number = number;
  seen.waited = query_timeout_;
  for (const auto& [rank, leave] : group.left_members) mark_unavailable(group, rank, kLeftText);
  for (int rank = 0; rank < group.size(); ++rank)
    if (const auto* failure = links_.failure(group.ranks[static_cast<size_t>(rank)]))
      mark_unavailable(group, rank, failure_text(failure->code));
  // In large contexts ranks forward queries, and one query at a time is enough: all ranks receive
  // its outcome.
  if (links_.size() <= eager_connect_ranks_ || group.query_routes.empty())
    query_all_progress(group);
  query.deadline = std::chrono::steady_clock::now() + query_timeout_;
  track_deadline(query.deadline);
  record_progress(group, group.layout.rank, group.progress());
}

void Engine::query_all_progress(GroupState& group) noexcept {
  group.hang_query->has_asked = true;
  group.query_routes[links_.rank()] = links_.rank();
  broadcast(
      group,
      {.kind = ControlMessage::Kind::kProgressQuery, .base = group.base, .subject = links_.rank()});
}

void Engine::on_hang_query_timeout(GroupState& group) noexcept {
  auto& query = *group.hang_query;
  if (query.has_asked) return finish_hang_query(group);
  query_all_progress(group);
  query.deadline += query_timeout_;
  track_deadline(query.deadline);
}

void Engine::mark_unavailable(GroupState& group, int rank, const char* why) noexcept {
  group.hang_query->report.unreachable[rank] = why;
  finish_hang_query_if_complete(group);
}

void Engine::record_progress(GroupState& group, int rank, const RankProgress& reported) noexcept {
  if (!group.hang_query || rank < 0 || group.hang_query->report.unreachable.contains(rank)) return;
  group.hang_query->report.progress[rank] = reported;
  finish_hang_query_if_complete(group);
}

void Engine::finish_hang_query_if_complete(GroupState& group) noexcept {
  const auto& seen = group.hang_query->report;
  if (seen.progress.size() + seen.unreachable.size() == group.ranks.size())
    finish_hang_query(group);
}

// Adds the ranks that have exited since the first one.
void Engine::add_failed_peers(const ProgressReport& seen, std::vector<int>& culprits) {
  for (int rank = 0; rank < seen.size; ++rank)
    if (const auto gone = seen.unreachable.find(rank);
        gone != seen.unreachable.end() && gone->second == kFailedText)
      if (!std::ranges::count(culprits, rank)) culprits.push_back(rank);
}

void Engine::finish_hang_query(GroupState& group) noexcept {
  if (group.failure() != nullptr) return;
  const auto& query = *group.hang_query;
  auto culprits = query.culprits.empty() ? query.report.culprits() : query.culprits;
  if (query.code == Errc::kPeerFailed) add_failed_peers(query.report, culprits);
  fail(group, query.code, query.reason + "; " + query.report.format(), std::move(culprits));
  base::log(base::LogLevel::kWarning, "communicator '" + group.name + "' (rank " +
                                          std::to_string(group.layout.rank) +
                                          ") has failed: " + group.failure()->why());
}

// Answers a query, and in large contexts forwards it to the ranks that are not connected to the
// asking rank.
void Engine::on_progress_query(GroupState* group, int from, const ControlMessage& query) noexcept {
  ControlMessage answer{.kind = ControlMessage::Kind::kProgress,
                        .base = query.base,
                        .subject = query.subject,
                        .reporter = links_.rank()};
  if (group == nullptr) {
    answer.progress.is_member = 0;
    return send_control(from, answer);
  }
  if (!group->query_routes.try_emplace(query.subject, from).second) return;
  answer.progress = group->progress();
  send_control(from, answer);
  if (links_.size() > eager_connect_ranks_) broadcast(*group, query, from);
}

void Engine::on_progress(GroupState& group, const ControlMessage& answer) noexcept {
  if (answer.subject == links_.rank())
    return record_progress(group, group.rank_of(answer.reporter), answer.progress);
  const auto route = group.query_routes.find(answer.subject);
  if (route != group.query_routes.end()) send_control(route->second, answer);
}

}  // namespace torch::comms::ctran
