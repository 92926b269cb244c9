#include <algorithm>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/peer_error_text.hpp"
#include "ctran/engine/collective_task.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/membership.hpp"
#include "side/abort_reason.hpp"
#include "side/mismatch_report.hpp"

// How groups of an engine end that cannot go on, and how their members learn of it.
namespace torch::comms::ctran {
namespace {

constexpr size_t kMostEarly = 1024;

// Links speak of ranks of the family: "rank 3: its process has ended".
std::string without_rank(const std::string& why) {
  const auto colon = why.find(": ");
  return why.starts_with("rank ") && colon != std::string::npos ? why.substr(colon + 2) : why;
}

std::vector<int> ranks_of(int member) {
  return member < 0 ? std::vector<int>() : std::vector{member};
}

}  // namespace

void Engine::on_failure(Task* task) noexcept {
  auto& group = *task->group;
  const auto failed = task->failed;
  const bool mismatch = failed.code == Errc::kMismatch;
  if (mismatch && task->queued) return disagree(group, task->sequence, failed.why);
  if (mismatch && !failed.closed)
    return inquire(group, failed.code, failed.why, ranks_of(failed.peer), 0);
  // The peer may have said before its end that it goes, or whose fault it was.
  listen();
  if (group.failure() != nullptr) return;
  if (group.departed.contains(failed.peer) && task->outlives_departures() && !mismatch)
    return;  // it ends when it is looked at next
  if (group.departed.contains(failed.peer))
    return fail(group, Errc::kPeerFailed, base::peer_closed_text(failed.peer), {failed.peer});
  if (mismatch) {
    if (group.inquiry) return;
    inquire(group, failed.code, failed.why, ranks_of(failed.peer), 0);
    if (group.inquiry) group.inquiry->closed_by = failed.peer;
    return;
  }
  const int peer = group.ranks[static_cast<size_t>(failed.peer)];
  if (const auto* failure = links_.failure(peer))
    on_peer_failed(peer, failure->code, failure->reason);
  if (group.inquiry) return;
  fail(group, failed.code, "the link has ended", {failed.peer});
}

// The first error counts. Its calls end in bury(): the caller may be looking at them.
void Engine::fail(Membership& group, Errc code, const std::string& why,
                  std::vector<int> culprits) noexcept {
  if (!group.set_failure(code, why, culprits)) return;
  dying_.push_back(&group);
  auto seen = monitor::as_seen_by_peers({code, why, std::move(culprits)}, group.place.rank);
  // All members raise ResourceExhausted where one rank ran out of something.
  if (code == Errc::kResourceExhausted) seen.code = code;
  Notice notice{.kind = Notice::Kind::kFailed,
                .code = seen.code,
                .base = group.base,
                .why = seen.reason,
                .place = group.whereabouts(),
                .reported = group.inquiry != nullptr};
  for (const int rank : seen.culprits)
    notice.culprits.push_back(group.ranks[static_cast<size_t>(rank)]);
  tell(group, notice);
}

// Ends the messages of a group that failed which are done: one link may bring the last byte of a
// message and the news of the failure at once, before the message's task is looked at.
void Engine::end_what_is_done(Membership& group) noexcept {
  std::vector<Task*> ended;
  std::erase_if(active_, [&](Task* task) {
    if (task->group.get() != &group || task->queued || group.holds(*task)) return false;
    try {
      if (task->advance() != Task::Outcome::kDone) return false;
    } catch (const std::exception&) {
      return false;  // it ends with the group's error
    }
    ended.push_back(task);
    return true;
  });
  for (auto* task : ended) {
    const auto keep = task->group;  // ending the task may let it go
    end(task, nullptr);
  }
}

// Ends the calls of the groups that have failed: nothing touches their memory any more.
void Engine::bury() noexcept {
  for (auto* group : std::exchange(dying_, {})) {
    end_what_is_done(*group);
    const auto code = group->failure()->code();
    for (auto* link : links_.active())
      link->close_streams(group->base, group->base + Membership::kStreams - 1, code);
    close_tags(*group, code);
    std::vector<Task*> ended;
    std::erase_if(active_, [&](Task* task) {
      if (task->group.get() != group) return false;
      if (!task->queued) ended.push_back(task);
      return true;
    });
    ended.insert(ended.end(), group->queue.begin(), group->queue.end());
    group->queue.clear();
    group->disagreement.reset();
    group->inquiry.reset();
    for (auto* task : ended) end(task, group->error_for(*task));
  }
}

void Engine::on_peer_failed(int family_rank, Errc code, const std::string& why) noexcept {
  for (auto& [base, group] : groups_) {
    const int rank = group->rank_of(family_rank);
    if (rank < 0 || group->departed.contains(rank) || group->failure() != nullptr) continue;
    const auto number = std::to_string(rank);
    auto text = "rank " + number + " has failed: " + without_rank(why);
    if (group->inquiry) {
      if (code == Errc::kPeerFailed) group->inquiry->explain(rank, code, text, {rank});
      note_gone(*group, rank, gone_by(code));
      continue;
    }
    if (code != Errc::kPeerFailed) {  // it may be as well as ever
      fail(*group, code, "this rank cannot reach rank " + number + ": " + without_rank(why),
           {group->place.rank});
      continue;
    }
    if (has_calls(*group))
      inquire(*group, code, std::move(text), {rank}, group->running());
    else
      fail(*group, code, text, {rank});
  }
}

// In flight.
bool Engine::has_calls(const Membership& group) const noexcept {
  return !group.queue.empty() || std::any_of(active_.begin(), active_.end(), [&](const Task* task) {
    return task->group.get() == &group;
  });
}

// To those that are connected, `but` one; they pass it on to theirs.
void Engine::tell(Membership& group, const Notice& notice, int but) noexcept {
  for (const int member : group.ranks)
    if (member != links_.rank() && member != but) send_notice(member, notice);
}

// Unless it is not connected, or not any more.
void Engine::send_notice(int family_rank, const Notice& notice) noexcept {
  if (!links_.is_connected(family_rank) || links_.failure(family_rank) != nullptr) return;
  try {
    control_.send(family_rank, links_.to(family_rank), notice);
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kWarning,
              "rank " + std::to_string(family_rank) + " could not be told: " + error.what());
  }
}

void Engine::on_notice(int from, const Notice& notice) noexcept {
  const auto found = groups_.find(notice.base);
  if (notice.kind == Notice::Kind::kWhere && found == groups_.end())
    return on_question(nullptr, from, notice);
  if (notice.kind == Notice::Kind::kHere && found == groups_.end()) return;
  if (notice.kind == Notice::Kind::kTagged &&
      (found == groups_.end() ? removed_.contains(notice.base)
                              : found->second->failure() != nullptr))
    return close_stream(static_cast<uint32_t>(notice.sequence), Errc::kFinalized);
  if (found == groups_.end()) {
    if (removed_.contains(notice.base)) return;
    // It is for a group that this rank is still making.
    early_.push_back({from, notice});
    if (early_.size() > kMostEarly) early_.pop_front();
    return;
  }
  auto& group = *found->second;
  const int rank = group.rank_of(from);
  if (rank < 0) return;
  if (notice.kind == Notice::Kind::kWhere) return on_question(&group, from, notice);
  if (notice.kind == Notice::Kind::kHere) return on_answer(group, notice);
  if (group.failure() != nullptr) return;
  switch (notice.kind) {
    case Notice::Kind::kFailed:
      return on_failed_there(group, rank, notice);
    case Notice::Kind::kAsks:
      return on_asked(group, rank, notice);
    case Notice::Kind::kDisagrees:
      disagree(group, notice.sequence, notice.why);
      return note_print(group, rank, notice.sequence, notice.print);
    case Notice::Kind::kDeparts:
      return on_departure(group, rank, notice);
    case Notice::Kind::kTagged:
      return on_tagged(group, rank, notice);
    case Notice::Kind::kRests:
      return on_rest(group, from, notice);
    default:
      return;
  }
}

// Whoever had no call in flight has not asked where the others are; it is worth it here.
void Engine::on_failed_there(Membership& group, int rank, const Notice& notice) noexcept {
  std::vector<int> culprits;
  for (const int member : notice.culprits)
    if (const int one = group.rank_of(member); one >= 0) culprits.push_back(one);
  // What this rank has ended by leaving was that one.
  if (group.left && std::ranges::count(culprits, group.place.rank)) {
    // The news may overtake messages that the failed rank had sent: these still arrive. It sends
    // nothing more, as if it had closed the group.
    if (group.queue.empty()) {
      const auto entry = group.departed.insert_or_assign(rank, Membership::Departure{});
      if (is_draining(group)) return;
      group.departed.erase(entry.first);
    }
    return fail(group, notice.code, "rank " + std::to_string(rank) + ": " + notice.why, {rank});
  }
  if (group.inquiry) group.inquiry->explain(rank, notice.code, notice.why, culprits);
  const bool asks = notice.code == Errc::kPeerFailed && !notice.reported && has_calls(group);
  if (!asks) return fail(group, notice.code, notice.why, std::move(culprits));
  inquire(group, notice.code, notice.why, std::move(culprits), group.running());
  note_place(group, rank, notice.place);
}

void Engine::on_departure(Membership& group, int rank, const Notice& notice) noexcept {
  group.departed[rank] = {notice.sequence, notice.receives};
  if (group.inquiry) {
    group.inquiry->explain(rank, Errc::kPeerFailed, base::peer_closed_text(rank), {rank});
    return note_gone(group, rank, kClosed);
  }
  fail_for_departed(group);
}

// Who is not connected with it hears of it from those who are.
void Engine::on_rest(Membership& group, int from, const Notice& notice) noexcept {
  const int rank = group.rank_of(notice.about);
  if (rank < 0 || rank >= 32) return;
  const uint32_t bit = uint32_t{1} << rank;
  const bool was_known = (group.resting.fetch_or(bit, std::memory_order_release) & bit) != 0;
  if (!was_known) tell(group, notice, from);
}

// Collectives that a member will never come to.
void Engine::fail_for_departed(Membership& group) noexcept {
  if (group.inquiry || group.queue.empty()) return;
  for (const auto& [rank, departure] : group.departed) {
    if (group.queue.front()->sequence <= departure.last) continue;
    if (is_draining(group)) return;
    return fail(group, Errc::kPeerFailed,
                base::peer_closed_text(rank) + ", after its collective number " +
                    std::to_string(departure.last),
                {rank});
  }
}

bool Engine::is_draining(const Membership& group) const noexcept {
  return std::any_of(active_.begin(), active_.end(), [&](const Task* task) {
    return task->group.get() == &group && task->is_draining();
  });
}

void Engine::ask(Membership& group, const CollectiveTask& task) noexcept {
  Notice question{.kind = Notice::Kind::kAsks,
                  .base = group.base,
                  .sequence = task.print().sequence,
                  .print = task.print()};
  if (!task.plan().has_own_counts()) return tell(group, question);
  const auto& problem = task.plan().problem();
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.place.rank) continue;
    question.sent = problem.blocks.count(rank);
    question.awaited = problem.receive_blocks.count(rank);
    send_notice(group.ranks[static_cast<size_t>(rank)], question);
  }
}

// What has been asked too early is compared when this rank comes to it: it may have nothing to send
// there, so that whoever asks would never meet it.
void Engine::on_asked(Membership& group, int rank, const Notice& question) noexcept {
  if (group.begun() < question.sequence) {
    group.questions[rank] = question;
    return;
  }
  const auto& own = group.fingerprint(question.sequence);
  if (own.sequence != question.sequence) return;  // long ago
  const auto met = own == question.print ? group.other_counts(rank, question) : std::string();
  if (own == question.print && met.empty()) return;
  disagree(group, question.sequence, met);
  note_print(group, rank, question.sequence, question.print);
}

void Engine::compare_with_questions(Membership& group) noexcept {
  std::erase_if(group.questions, [&](const auto& asked) {
    const auto& [rank, question] = asked;
    if (group.begun() < question.sequence) return false;
    on_asked(group, rank, question);
    return true;
  });
}

// Everybody tells everybody what it called, and waits a moment for what the others did. The
// earliest collective counts: a rank that was done with it meets its messages in a later one.
void Engine::disagree(Membership& group, uint64_t sequence, const std::string& met) noexcept {
  if (group.inquiry || group.failure() != nullptr) return;
  auto& now = group.disagreement;
  if (now && now->sequence == sequence && now->met.empty()) now->met = met;
  if (now && now->sequence <= sequence) return;
  const auto until = now ? now->until : std::chrono::steady_clock::now() + hearing_;
  now = std::make_unique<Membership::Disagreement>();
  now->sequence = sequence;
  now->until = until;
  now->met = met;
  watch(until);
  answer(group);
}

// Once, and not before this rank has come to it.
void Engine::answer(Membership& group) noexcept {
  auto& disagreement = *group.disagreement;
  const auto& own = group.fingerprint(disagreement.sequence);
  if (disagreement.answered || own.sequence < disagreement.sequence) return;
  disagreement.answered = true;
  tell(group, {.kind = Notice::Kind::kDisagrees,
               .base = group.base,
               .sequence = disagreement.sequence,
               .print = own,
               .why = disagreement.met});
  note_print(group, group.place.rank, disagreement.sequence, own);
}

void Engine::note_print(Membership& group, int rank, uint64_t sequence,
                        const Fingerprint& print) noexcept {
  if (!group.disagreement || group.disagreement->sequence != sequence) return;
  group.disagreement->prints[rank] = print;
  if (group.disagreement->prints.size() == group.ranks.size()) settle_disagreement(group);
}

void Engine::settle_disagreement(Membership& group) noexcept {
  std::vector<int> silent;
  for (int rank = 0; rank < group.size(); ++rank)
    if (!group.disagreement->prints.contains(rank)) silent.push_back(rank);
  const auto found =
      monitor::make_mismatch_report(group.disagreement->prints, silent, group.disagreement->met);
  if (silent.empty()) return fail(group, Errc::kMismatch, found.reason, found.ranks);
  const uint64_t number = group.disagreement->sequence;
  group.disagreement.reset();
  inquire(group, Errc::kMismatch, found.reason, found.ranks, number);
}

}  // namespace torch::comms::ctran
