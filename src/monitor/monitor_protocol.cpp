#include "monitor/monitor_protocol.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "monitor/overlay_topology.hpp"

namespace torch::comms::monitor {
namespace {

using std::chrono::milliseconds;
using Kind = MonitorMessage::Kind;
using Purpose = MonitorQuery::Purpose;

constexpr size_t kMaxPastQueries = 16;
constexpr size_t kMaxChecks = 64;
// A rank waits less long for its neighbors' replies than its parent waits for the rank's own reply.
constexpr milliseconds forwarded_timeout(milliseconds timeout) { return timeout * 9 / 10; }
// How long the origin waits before it asks again what ranks call that have not begun it.
constexpr milliseconds kRepeatInterval{10};

std::vector<int> all_except(int rank, int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::erase(ranks, rank);
  return ranks;
}

}  // namespace

MonitorProtocol::MonitorProtocol(const MonitoredGroup& group, const CollectiveLogReader& log,
                                 MessageCarrier& carrier, const MonitorRetryPolicy& retry_policy)
    : group_(group.id),
      rank_(group.rank),
      size_(group.size),
      log_(log),
      carrier_(carrier),
      retry_policy_(retry_policy),
      is_complete_(group.topology == MonitorTopology::kComplete),
      neighbors_(is_complete_ ? all_except(group.rank, group.size)
                              : overlay_neighbors(group.rank, group.size)) {}

MonitorMessage MonitorProtocol::failed_message(int rank, const std::string& why) const {
  return {.kind = Kind::kFailed, .group = group_, .failed_rank = rank, .reason = why};
}

// Failures and mismatches also reach ranks that have closed the group: their operations may still
// wait.
void MonitorProtocol::send_to_neighbors(const MonitorMessage& message, int except) const {
  const bool concerns_closed = message.kind == Kind::kFailed || message.is_mismatch;
  for (const int neighbor : neighbors_) {
    const auto state = closed_or_failed_.find(neighbor);
    const bool receives = state == closed_or_failed_.end() ||
                          (concerns_closed && state->second == RankStatus::State::kClosed);
    if (neighbor != except && receives) carrier_.send(neighbor, message);
  }
}

void MonitorProtocol::close(const std::vector<PostedCounts>& posted, bool to_all_ranks) {
  is_closed_ = true;
  MonitorMessage message{
      .kind = Kind::kClosed, .group = group_, .number = log_.status_of(0).progress.called};
  // Ranks that have closed the group before are notified, too: their operations may still wait for
  // this rank.
  const auto notify = [&](int rank) {
    if (!posted.empty()) message.posted = posted[static_cast<size_t>(rank)];
    if (rank != rank_) carrier_.send(rank, message);
  };
  for (int rank = 0; to_all_ranks && rank < size_; ++rank) notify(rank);
  if (!to_all_ranks) std::ranges::for_each(neighbors_, notify);
}

void MonitorProtocol::leave_failed(const std::string& why) {
  for (const int neighbor : neighbors_) carrier_.send(neighbor, failed_message(rank_, why));
}

std::optional<MonitorProtocol::GroupFailure> MonitorProtocol::failure() const {
  const Moment aborts = peer_abort_ ? peer_abort_->since : kNever;
  if (mismatch_)
    return GroupFailure{{Errc::kMismatch, mismatch_->reason, mismatch_->culprits}, aborts};
  const int failed = failed_ranks_.empty() ? -1 : failed_ranks_.front();
  // A peer's abort reason adds nothing if it only names the rank that has already been seen to
  // fail.
  if (peer_abort_ && std::ranges::count(peer_abort_->reason.culprits, failed) == 0)
    return GroupFailure{as_seen_by_peers(peer_abort_->reason, peer_abort_->rank), aborts};
  if (failed < 0) return std::nullopt;
  return GroupFailure{{Errc::kPeerFailed, failed_rank_text(failed, first_failure_), {failed}},
                      aborts};
}

// ---- queries

Moment MonitorProtocol::check_mismatch_later(Moment began) {
  const Moment now = carrier_.now();
  if (began == last_checked_begin_ && now < next_check_) return next_check_;
  check_interval_ = began == last_checked_begin_
                        ? std::min(check_interval_ * 2, retry_policy_.max_interval)
                        : retry_policy_.initial_interval;
  last_checked_begin_ = began;
  next_check_ = now + check_interval_;
  if (now - last_query_seen_ >= retry_policy_.initial_interval)
    start_query(Purpose::kCheckMismatch, log_.first_incomplete());
  return next_check_;
}

void MonitorProtocol::check_mismatch_now() {
  const uint64_t number = log_.first_incomplete();
  // A second query would cancel the first one, whose replies may be on their way.
  if (query_ && query_->parent < 0 && query_->query.number == number) return;
  start_query(Purpose::kCheckMismatch, number);
}

void MonitorProtocol::report_mismatch(uint64_t number, const std::string& observation) {
  if (observation_.number != 0 && observation_.number <= number) return;
  observation_ = {number, observation};
  report_number_ = number;
  report_.reset();
  if (report_deadline_ == kNever) report_deadline_ = carrier_.now() + retry_policy_.reply_timeout;
  start_query(Purpose::kReportMismatch, number);
}

void MonitorProtocol::query_progress(uint64_t number) {
  if (report_deadline_ != kNever) return;
  const Moment now = carrier_.now();
  if (report_ && now - report_->since < 2 * retry_policy_.reply_timeout) return;
  report_.reset();
  report_number_ = number;
  report_deadline_ = now + retry_policy_.reply_timeout;
  start_query(Purpose::kReportProgress, number);
}

void MonitorProtocol::announce_abort(const AbortReason& why) {
  // If a peer aborts, all ranks get the announcement of that peer.
  if (own_abort_code_ || peer_abort_) return;
  own_abort_code_ = why.code;
  start_query(Purpose::kAnnounceAbort, log_.first_incomplete(), why);
}

void MonitorProtocol::start_query(Purpose purpose, uint64_t number, const AbortReason& why) {
  if (number == 0 && purpose == Purpose::kCheckMismatch) return;
  MonitorMessage query_message{.kind = Kind::kQuery, .group = group_};
  query_message.query = {number, purpose, rank_, ++query_serial_};
  query_message.abort_reason = why;
  if (query_ && !query_message.query.supersedes(query_->query)) return;
  // A query for report() must not end after report_deadline_.
  const bool is_report = purpose == Purpose::kReportMismatch || purpose == Purpose::kReportProgress;
  propagate_query(std::move(query_message), -1,
                  is_report ? std::chrono::floor<milliseconds>(report_deadline_ - carrier_.now())
                            : retry_policy_.reply_timeout);
}

MonitorProtocol::EchoQuery MonitorProtocol::make_echo(const MonitorQuery& query) const {
  EchoQuery echo;
  echo.query = query;
  echo.statuses.add(rank_, log_.status_of(query.number));
  for (const auto& [rank, state] : closed_or_failed_) echo.statuses.add(rank, {.state = state});
  if (query.number == observation_.number) echo.observation = observation_.text;
  return echo;
}

void MonitorProtocol::propagate_query(MonitorMessage query_message, int parent,
                                      milliseconds timeout) {
  drop_query();
  last_query_seen_ = carrier_.now();
  auto& echo = query_.emplace(make_echo(query_message.query));
  echo.parent = parent;
  echo.deadline = last_query_seen_ + timeout;
  query_message.reply_timeout_ms = static_cast<uint32_t>(forwarded_timeout(timeout).count());
  for (const int neighbor : neighbors_)
    if (neighbor != parent && !has_closed_or_failed(neighbor))
      echo.pending_neighbors.insert(neighbor);
  send_to_neighbors(query_message, parent);
  if (echo.pending_neighbors.empty()) finish_query();
}

void MonitorProtocol::drop_query() {
  if (!query_) return;
  past_queries_.push_back(query_->query);
  if (past_queries_.size() > kMaxPastQueries) past_queries_.erase(past_queries_.begin());
  query_.reset();
}

void MonitorProtocol::on_query(int from, const MonitorMessage& query_message) {
  const auto& query = query_message.query;
  const bool ends = query.purpose == Purpose::kAnnounceAbort && query.origin != rank_;
  if (ends && !peer_abort_)
    peer_abort_ = {query.origin, query_message.abort_reason, carrier_.now()};
  if (is_complete_) {
    last_query_seen_ = carrier_.now();
    return send_reply(from, make_echo(query));
  }
  if (query_ && query_->query == query) return on_reply(from);
  if (std::ranges::find(past_queries_, query) != past_queries_.end()) return;
  if (query_ && !query.supersedes(query_->query)) return;
  // The query of this rank, if it is one, stops here: the other one's result may come a little
  // after this rank's deadline.
  if (query_ && report_deadline_ != kNever)
    report_deadline_ = carrier_.now() + retry_policy_.reply_timeout * 6 / 5;
  propagate_query(
      query_message, from,
      std::min(milliseconds(query_message.reply_timeout_ms), retry_policy_.reply_timeout));
}

void MonitorProtocol::send_reply(int to, const EchoQuery& echo) {
  carrier_.send(to, {.kind = Kind::kReply,
                     .group = group_,
                     .query = echo.query,
                     .reason = echo.observation,
                     .statuses = echo.statuses});
}

void MonitorProtocol::on_reply(int from) {
  if (!query_ || query_->pending_neighbors.erase(from) == 0) return;
  if (query_->pending_neighbors.empty()) finish_query();
}

void MonitorProtocol::finish_query() {
  const bool is_origin = query_->parent < 0;
  if (is_origin && query_->query.purpose == Purpose::kReportMismatch)
    return finish_mismatch_report();
  const EchoQuery echo = *query_;
  drop_query();
  if (!is_origin) return send_reply(echo.parent, echo);
  // A rank that aborts in the middle of an operation has left its call. Ranks on their way to that
  // call may have called something later, so a difference is no mismatch.
  const bool is_user_abort =
      echo.query.purpose == Purpose::kAnnounceAbort && own_abort_code_ == Errc::kAborted;
  if (!mismatch_ && !is_user_abort && find_mismatch(echo.statuses, echo.query)) return;
  if (echo.query.purpose == Purpose::kCheckMismatch) return;
  const auto progress =
      echo.statuses.progress_report(size_, echo.query.number, retry_policy_.reply_timeout);
  publish_result({.kind = Kind::kResult,
                  .group = group_,
                  .query = echo.query,
                  .reason = progress.format(),
                  .culprits = progress.culprits()});
}

bool MonitorProtocol::find_mismatch(const RankStatusSet& statuses, const MonitorQuery& query) {
  const uint64_t number = query.number;
  std::unordered_map<int, Fingerprint> fingerprints;
  const auto all_equal = [&] {
    return std::ranges::all_of(fingerprints, [&](const auto& entry) {
      return entry.second == fingerprints.begin()->second;
    });
  };
  // The earliest mismatch counts: a rank that has completed that collective finds its remains in a
  // later one.
  uint64_t at = number - std::min<uint64_t>(number, RankStatus::kFingerprints);
  do fingerprints = statuses.fingerprints(++at);
  while (all_equal() && at < number);
  if (number == 0 || all_equal()) return false;
  // The minority is unknown while ranks have not begun that collective.
  if (is_complete_ && query.purpose == Purpose::kCheckMismatch &&
      fingerprints.size() + closed_or_failed_.size() < static_cast<size_t>(size_))
    return report_mismatch(at, {}), true;
  const auto progress = statuses.progress_report(size_, number, retry_policy_.reply_timeout);
  publish_mismatch(query, at, make_mismatch_report(fingerprints, progress.silent()));
  return true;
}

void MonitorProtocol::finish_mismatch_report() {
  EchoQuery echo = *query_;
  const uint64_t number = echo.query.number;
  auto progress = echo.statuses.progress_report(size_, number, retry_policy_.reply_timeout);
  if (!progress.silent().empty()) {
    echo.statuses.merge(echo.earlier_statuses);
    progress = echo.statuses.progress_report(size_, number, retry_policy_.reply_timeout);
  }
  auto calls = echo.statuses.fingerprints(number);
  // A rank that is far ahead has forgotten the fingerprint: its present call stands for it.
  for (const auto& [rank, entry] : progress.progress)
    if (entry.finished >= number) calls.try_emplace(rank, entry.fingerprint);
  std::vector<int> silent;
  for (int rank = 0; rank < size_; ++rank)
    if (!calls.contains(rank)) silent.push_back(rank);
  const bool is_one_behind =
      progress.silent().empty() &&
      std::ranges::any_of(silent, [&](int rank) { return progress.progress.contains(rank); });
  const Moment next = carrier_.now() + kRepeatInterval;
  if (is_one_behind && next < report_deadline_) {
    query_->deadline = next;
    query_->is_repeated = true;
    return;
  }
  drop_query();
  auto found = make_mismatch_report(calls, silent, echo.observation);
  if (!silent.empty()) {
    found.reason += "; " + progress.format();
    if (found.ranks.empty()) found.ranks = progress.culprits();
  }
  publish_mismatch(echo.query, number, found);
}

void MonitorProtocol::publish_mismatch(const MonitorQuery& query, uint64_t number,
                                       const MismatchReport& found) {
  publish_result({.kind = Kind::kResult,
                  .group = group_,
                  .number = number,
                  .query = query,
                  .is_mismatch = true,
                  .reason = found.reason,
                  .culprits = found.ranks});
}

// With MonitorTopology::kComplete each rank makes its own progress report.
void MonitorProtocol::publish_result(const MonitorMessage& result) {
  store_result(result);
  if (!is_complete_ || result.is_mismatch || result.query.purpose != Purpose::kReportProgress)
    send_to_neighbors(result);
}

void MonitorProtocol::store_result(const MonitorMessage& result) {
  last_result_ = result.query;
  if (result.query.purpose == Purpose::kAnnounceAbort) is_abort_acknowledged_ = true;
  report_deadline_ = kNever;
  if (query_ && query_->parent < 0 && query_->query.purpose == Purpose::kReportMismatch)
    drop_query();
  if (result.is_mismatch) {
    if (!mismatch_) mismatch_ = {result.number, result.reason, result.culprits};
    return;
  }
  report_ = {result.reason, result.culprits, carrier_.now()};
}

void MonitorProtocol::on_result(int from, const MonitorMessage& result) {
  if (result.is_mismatch ? mismatch_.has_value() : result.query == last_result_) return;
  store_result(result);
  if (!is_complete_) send_to_neighbors(result, from);
}

// ---- consistency checks

void MonitorProtocol::start_consistency_check(uint64_t number) {
  auto& check = checks_[number];
  check.has_entered = true;
  check.statuses.add(rank_, log_.status_of(number));
  advance_consistency_check(number);
}

void MonitorProtocol::advance_consistency_check(uint64_t number) {
  const auto at = checks_.find(number);
  if (at == checks_.end() || !at->second.has_entered) return;
  for (const int child : overlay_children(rank_, size_))
    if (!has_closed_or_failed(child) && !at->second.received_from.contains(child)) return;
  const auto statuses = std::move(at->second.statuses);
  checks_.erase(at);
  if (rank_ != 0) {
    if (!has_closed_or_failed(overlay_parent(rank_)))
      carrier_.send(
          overlay_parent(rank_),
          {.kind = Kind::kCheck, .group = group_, .number = number, .statuses = statuses});
    return;
  }
  if (find_mismatch(statuses, {.number = number, .origin = rank_, .serial = ++query_serial_}))
    return;
  on_message(-1, {.kind = Kind::kProceed, .group = group_, .number = number});
}

// ---- events

void MonitorProtocol::on_message(int from, const MonitorMessage& message) {
  const bool ends = message.kind == Kind::kClosed || message.kind == Kind::kFailed;
  if (is_closed_ && !ends) return;
  switch (message.kind) {
    case Kind::kFailed:
      return on_peer_failed(message.failed_rank, message.reason);
    case Kind::kClosed:
      peer_closes_.try_emplace(from, PeerClose{message.number, message.posted});
      return mark_closed_or_failed(from, RankStatus::State::kClosed);
    case Kind::kQuery:
      return on_query(from, message);
    case Kind::kReply:
      if (!query_ || query_->query != message.query) return;
      query_->statuses.merge(message.statuses);
      // The sender has no such group.
      if (message.statuses.is_empty()) query_->statuses.add(from, {.progress = {.is_member = 0}});
      if (query_->observation.empty()) query_->observation = message.reason;
      return on_reply(from);
    case Kind::kResult:
      return on_result(from, message);
    case Kind::kCheck: {
      if (checks_.size() >= kMaxChecks && !checks_.contains(message.number)) return;
      auto& check = checks_[message.number];
      check.statuses.merge(message.statuses);
      check.received_from.insert(from);
      return advance_consistency_check(message.number);
    }
    case Kind::kProceed:
      last_consistent_ = std::max(last_consistent_, message.number);
      for (const int child : overlay_children(rank_, size_))
        if (!has_closed_or_failed(child)) carrier_.send(child, message);
      return;
  }
}

void MonitorProtocol::mark_closed_or_failed(int rank, RankStatus::State state,
                                            const std::string& why) {
  if (rank < 0 || rank == rank_ || !closed_or_failed_.try_emplace(rank, state).second) return;
  if (state == RankStatus::State::kFailed) {
    if (failed_ranks_.empty()) first_failure_ = why;
    failed_ranks_.push_back(rank);
    send_to_neighbors(failed_message(rank, why));
  }
  if (query_) query_->statuses.add(rank, {.state = state});
  on_reply(rank);
  std::vector<uint64_t> open;
  open.reserve(checks_.size());
  for (const auto& [number, check] : checks_) open.push_back(number);
  for (const uint64_t number : open) advance_consistency_check(number);
}

void MonitorProtocol::on_time() {
  const Moment now = carrier_.now();
  if (query_ && now >= query_->deadline) {
    if (!query_->is_repeated || now >= report_deadline_) {
      finish_query();
    } else {
      const auto earlier = query_->statuses;
      start_query(Purpose::kReportMismatch, report_number_);
      if (query_) query_->earlier_statuses = earlier;
    }
  }
  if (now < report_deadline_) return;
  // Another rank's query superseded this rank's query and has produced no result.
  const auto progress =
      make_echo({.number = report_number_})
          .statuses.progress_report(size_, report_number_, retry_policy_.reply_timeout);
  report_ = {progress.format(), progress.culprits(), now};
  report_deadline_ = kNever;
}

Moment MonitorProtocol::next_time() const noexcept {
  return std::min(query_ ? query_->deadline : kNever, report_deadline_);
}

}  // namespace torch::comms::monitor
