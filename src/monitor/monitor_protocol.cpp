#include "monitor/monitor_protocol.hpp"

#include <algorithm>
#include <utility>

#include "monitor/mismatch_report.hpp"
#include "monitor/overlay_topology.hpp"

namespace torch::comms::monitor {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostPast = 16;
constexpr size_t kMostChecks = 64;
// A rank waits less long for its neighbors' replies than its parent waits for the rank's own reply.
constexpr milliseconds further(milliseconds patience) { return patience * 9 / 10; }

}  // namespace

MonitorProtocol::MonitorProtocol(uint64_t group, int rank, int size,
                                 const CollectiveLogReader& diary, const MonitorRetryPolicy& pace)
    : group_(group),
      rank_(rank),
      size_(size),
      log_(diary),
      retry_policy_(pace),
      neighbors_(overlay_neighbors(rank, size)) {}

MonitorMessage MonitorProtocol::make_message(MonitorMessage::Kind kind) const {
  MonitorMessage made;
  made.kind = kind;
  made.group = group_;
  return made;
}

void MonitorProtocol::send_to_neighbors(const MonitorMessage& note, int but,
                                        OutgoingMessages& out) const {
  for (const int neighbour : neighbors_)
    if (neighbour != but && !has_closed_or_failed(neighbour)) out.emplace_back(neighbour, note);
}

void MonitorProtocol::close(OutgoingMessages& out, const std::vector<PostedCounts>& posted,
                            bool tells_all) {
  is_closed_ = true;
  auto told = make_message(MonitorMessage::Kind::kClosed);
  told.number = log_.status_of(0).progress.called;
  // Ranks that have closed the group before are notified, too: their operations may still wait for
  // this rank.
  const auto tell = [&](int rank) {
    if (!posted.empty()) told.posted = posted[static_cast<size_t>(rank)];
    if (rank != rank_) out.emplace_back(rank, told);
  };
  for (int rank = 0; tells_all && rank < size_; ++rank) tell(rank);
  if (!tells_all) std::ranges::for_each(neighbors_, tell);
}

// ---- queries

void MonitorProtocol::check_mismatch_later(Moment began, Moment now, OutgoingMessages& out) {
  if (began == last_checked_begin_ && now < next_check_) return;
  check_interval_ = began == last_checked_begin_
                        ? std::min(check_interval_ * 2, retry_policy_.max_interval)
                        : retry_policy_.initial_interval;
  last_checked_begin_ = began;
  next_check_ = now + check_interval_;
  if (now - last_query_seen_ < retry_policy_.initial_interval) return;
  start_query(MonitorQuery::Purpose::kCheckMismatch, now, out);
}

void MonitorProtocol::check_mismatch_now(Moment now, OutgoingMessages& out) {
  // A second query would cancel the first one, whose replies may be on their way.
  if (query_ && query_->parent < 0 && query_->query.number == log_.first_incomplete()) return;
  start_query(MonitorQuery::Purpose::kCheckMismatch, now, out);
}

void MonitorProtocol::query_progress(Moment now, OutgoingMessages& out) {
  if (report_deadline_ != kNever) return;
  if (report_ && now - report_->since < 2 * retry_policy_.reply_timeout) return;
  report_.reset();
  report_deadline_ = now + retry_policy_.reply_timeout;
  start_query(MonitorQuery::Purpose::kReportProgress, now, out);
}

void MonitorProtocol::announce_abort(const AbortReason& why, Moment now, OutgoingMessages& out) {
  // If a peer aborts, all ranks get the announcement of that peer.
  if (own_abort_code_ || peer_abort_) return;
  own_abort_code_ = why.code;
  start_query(MonitorQuery::Purpose::kAnnounceAbort, now, out, why);
}

void MonitorProtocol::start_query(MonitorQuery::Purpose aim, Moment now, OutgoingMessages& out,
                                  const AbortReason& why) {
  const uint64_t number = log_.first_incomplete();
  if (number == 0 && aim == MonitorQuery::Purpose::kCheckMismatch) return;
  auto asked = make_message(MonitorMessage::Kind::kQuery);
  asked.query = {.number = number, .purpose = aim, .origin = rank_, .serial = ++query_serial_};
  asked.abort_reason = why;
  if (query_ && !asked.query.supersedes(query_->query)) return;
  propagate_query(std::move(asked), -1, retry_policy_.reply_timeout, now, out);
}

void MonitorProtocol::propagate_query(MonitorMessage asked, int parent, milliseconds patience,
                                      Moment now, OutgoingMessages& out) {
  drop_query();
  last_query_seen_ = now;
  auto& wave = query_.emplace(EchoQuery{});
  wave.query = asked.query;
  wave.parent = parent;
  wave.deadline = now + patience;
  wave.statuses.add(rank_, log_.status_of(asked.query.number));
  for (const auto& [rank, how] : closed_or_failed_) wave.statuses.add(rank, {.state = how});
  asked.reply_timeout_ms = static_cast<uint32_t>(further(patience).count());
  for (const int neighbour : neighbors_)
    if (neighbour != parent && !has_closed_or_failed(neighbour))
      wave.pending_neighbors.insert(neighbour);
  send_to_neighbors(asked, parent, out);
  if (wave.pending_neighbors.empty()) finish_query(now, out);
}

void MonitorProtocol::drop_query() {
  if (!query_) return;
  past_queries_.push_back(query_->query);
  if (past_queries_.size() > kMostPast) past_queries_.erase(past_queries_.begin());
  query_.reset();
}

void MonitorProtocol::on_query(int from, const MonitorMessage& asked, Moment now,
                               OutgoingMessages& out) {
  const bool ends =
      asked.query.purpose == MonitorQuery::Purpose::kAnnounceAbort && asked.query.origin != rank_;
  if (ends && !peer_abort_) peer_abort_ = {asked.query.origin, asked.abort_reason, now};
  if (query_ && query_->query == asked.query) return on_reply(from, now, out);
  if (std::ranges::find(past_queries_, asked.query) != past_queries_.end()) return;
  if (query_ && !asked.query.supersedes(query_->query)) return;
  propagate_query(asked, from,
                  std::min(milliseconds(asked.reply_timeout_ms), retry_policy_.reply_timeout), now,
                  out);
}

void MonitorProtocol::on_reply(int from, Moment now, OutgoingMessages& out) {
  if (!query_ || query_->pending_neighbors.erase(from) == 0) return;
  if (query_->pending_neighbors.empty()) finish_query(now, out);
}

void MonitorProtocol::finish_query(Moment now, OutgoingMessages& out) {
  const EchoQuery wave = *query_;
  drop_query();
  if (wave.parent >= 0) {
    auto told = make_message(MonitorMessage::Kind::kReply);
    told.query = wave.query;
    told.statuses = wave.statuses;
    if (!has_closed_or_failed(wave.parent)) out.emplace_back(wave.parent, told);
    return;
  }
  // A rank that aborts in the middle of an operation has left its call. Ranks on their way to that
  // call may have called something later, so a difference is no mismatch.
  const bool is_way_out = wave.query.purpose == MonitorQuery::Purpose::kAnnounceAbort &&
                          own_abort_code_ == Errc::kAborted;
  if (!mismatch_ && !is_way_out && publish_mismatch(wave.statuses, wave.query, now, out)) return;
  if (wave.query.purpose == MonitorQuery::Purpose::kCheckMismatch) return;
  const auto seen =
      wave.statuses.progress_report(size_, wave.query.number, retry_policy_.reply_timeout);
  auto found = make_message(MonitorMessage::Kind::kResult);
  found.query = wave.query;
  found.culprits = seen.culprits();
  found.reason = seen.format();
  publish_result(found, now, out);
}

bool MonitorProtocol::publish_mismatch(const RankStatusSet& answers, const MonitorQuery& question,
                                       Moment now, OutgoingMessages& out) {
  const uint64_t number = question.number;
  std::unordered_map<int, Fingerprint> prints;
  const auto all_equal = [&] {
    return std::ranges::all_of(
        prints, [&](const auto& print) { return print.second == prints.begin()->second; });
  };
  // The earliest mismatch counts: a rank that has completed that collective finds its remains in a
  // later one.
  uint64_t at = number - std::min<uint64_t>(number, RankStatus::kFingerprints);
  do prints = answers.fingerprints(++at);
  while (all_equal() && at < number);
  if (number == 0 || all_equal()) return false;
  const auto what = make_mismatch_report(
      prints, answers.progress_report(size_, number, retry_policy_.reply_timeout).silent());
  auto found = make_message(MonitorMessage::Kind::kResult);
  found.query = question;
  found.number = at;
  found.culprits = what.ranks;
  found.is_mismatch = true;
  found.reason = what.reason;
  publish_result(found, now, out);
  return true;
}

void MonitorProtocol::publish_result(const MonitorMessage& found, Moment now,
                                     OutgoingMessages& out) {
  store_result(found, now);
  send_to_neighbors(found, -1, out);
}

void MonitorProtocol::store_result(const MonitorMessage& found, Moment now) {
  last_result_ = found.query;
  if (found.query.purpose == MonitorQuery::Purpose::kAnnounceAbort) is_abort_acknowledged_ = true;
  report_deadline_ = kNever;
  if (found.is_mismatch) {
    if (!mismatch_) mismatch_ = {found.number, found.reason, found.culprits};
    return;
  }
  report_ = {found.reason, found.culprits, now};
}

void MonitorProtocol::on_result(int from, const MonitorMessage& found, Moment now,
                                OutgoingMessages& out) {
  if (found.is_mismatch ? mismatch_.has_value() : found.query == last_result_) return;
  store_result(found, now);
  send_to_neighbors(found, from, out);
}

// ---- consistency checks

void MonitorProtocol::start_consistency_check(uint64_t number, Moment now, OutgoingMessages& out) {
  auto& check = checks_[number];
  check.has_entered = true;
  check.statuses.add(rank_, log_.status_of(number));
  advance_consistency_check(number, now, out);
}

void MonitorProtocol::advance_consistency_check(uint64_t number, Moment now,
                                                OutgoingMessages& out) {
  const auto at = checks_.find(number);
  if (at == checks_.end() || !at->second.has_entered) return;
  for (const int child : overlay_children(rank_, size_))
    if (!has_closed_or_failed(child) && !at->second.received_from.contains(child)) return;
  const auto answers = std::move(at->second.statuses);
  checks_.erase(at);
  if (rank_ != 0) {
    auto told = make_message(MonitorMessage::Kind::kCheck);
    told.number = number;
    told.statuses = answers;
    if (!has_closed_or_failed(overlay_parent(rank_))) out.emplace_back(overlay_parent(rank_), told);
    return;
  }
  if (publish_mismatch(answers, {.number = number, .origin = rank_, .serial = ++query_serial_}, now,
                       out))
    return;
  auto go = make_message(MonitorMessage::Kind::kProceed);
  go.number = number;
  on_message(-1, go, now, out);
}

// ---- events

void MonitorProtocol::on_message(int from, const MonitorMessage& note, Moment now,
                                 OutgoingMessages& out) {
  const bool ends =
      note.kind == MonitorMessage::Kind::kClosed || note.kind == MonitorMessage::Kind::kFailed;
  if (is_closed_ && !ends) return;
  switch (note.kind) {
    case MonitorMessage::Kind::kFailed:
      return mark_closed_or_failed(note.failed_rank, RankStatus::State::kFailed, now, out);
    case MonitorMessage::Kind::kClosed:
      peer_closes_.try_emplace(from, PeerClose{note.number, note.posted});
      return mark_closed_or_failed(from, RankStatus::State::kClosed, now, out);
    case MonitorMessage::Kind::kQuery:
      return on_query(from, note, now, out);
    case MonitorMessage::Kind::kReply:
      if (!query_ || query_->query != note.query) return;
      query_->statuses.merge(note.statuses);
      return on_reply(from, now, out);
    case MonitorMessage::Kind::kResult:
      return on_result(from, note, now, out);
    case MonitorMessage::Kind::kCheck: {
      if (checks_.size() >= kMostChecks && !checks_.contains(note.number)) return;
      auto& check = checks_[note.number];
      check.statuses.merge(note.statuses);
      check.received_from.insert(from);
      return advance_consistency_check(note.number, now, out);
    }
    case MonitorMessage::Kind::kProceed:
      last_consistent_ = std::max(last_consistent_, note.number);
      for (const int child : overlay_children(rank_, size_))
        if (!has_closed_or_failed(child)) out.emplace_back(child, note);
      return;
  }
}

void MonitorProtocol::on_peer_failed(int neighbour, Moment now, OutgoingMessages& out) {
  mark_closed_or_failed(neighbour, RankStatus::State::kFailed, now, out);
}

void MonitorProtocol::mark_closed_or_failed(int rank, RankStatus::State how, Moment now,
                                            OutgoingMessages& out) {
  if (rank < 0 || rank == rank_ || !closed_or_failed_.try_emplace(rank, how).second) return;
  if (how == RankStatus::State::kFailed) {
    if (failed_rank_ < 0) failed_rank_ = rank;
    auto told = make_message(MonitorMessage::Kind::kFailed);
    told.failed_rank = rank;
    send_to_neighbors(told, -1, out);
  }
  if (query_) query_->statuses.add(rank, {.state = how});
  on_reply(rank, now, out);
  std::vector<uint64_t> open;
  open.reserve(checks_.size());
  for (const auto& [number, check] : checks_) open.push_back(number);
  for (const uint64_t number : open) advance_consistency_check(number, now, out);
}

void MonitorProtocol::on_time(Moment now, OutgoingMessages& out) {
  if (query_ && now >= query_->deadline) finish_query(now, out);
  if (now < report_deadline_) return;
  // Another rank's query superseded this rank's query and has produced no result.
  RankStatusSet answers;
  const uint64_t number = log_.first_incomplete();
  answers.add(rank_, log_.status_of(number));
  for (const auto& [rank, how] : closed_or_failed_) answers.add(rank, {.state = how});
  const auto seen = answers.progress_report(size_, number, retry_policy_.reply_timeout);
  report_ = {seen.format(), seen.culprits(), now};
  report_deadline_ = kNever;
}

Moment MonitorProtocol::next_time() const noexcept {
  return std::min(query_ ? query_->deadline : kNever, report_deadline_);
}

}  // namespace torch::comms::monitor
