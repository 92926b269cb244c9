#include <algorithm>
#include <string>

#include "base/log.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/membership.hpp"

// "Where is every rank?": asked before a group fails, and answered by whoever makes progress on the
// other ranks, which is their family's own thread where their program is elsewhere.
namespace torch::comms::ctran {

// The group stands still from here on, and fails when all have answered, or `hearing_` has passed.
void Engine::inquire(Membership& group, Errc code, std::string why, std::vector<int> culprits,
                     uint64_t number) noexcept {
  if (group.inquiry || group.failure() != nullptr) return;
  group.inquiry = std::make_unique<Membership::Inquiry>();
  auto& inquiry = *group.inquiry;
  inquiry.code = code;
  inquiry.why = std::move(why);
  inquiry.culprits = std::move(culprits);
  auto& seen = inquiry.seen;
  seen.size = group.size();
  seen.number = number;
  seen.waited = hearing_;
  for (const auto& [rank, departure] : group.departed) note_gone(group, rank, kClosed);
  for (int rank = 0; rank < group.size(); ++rank)
    if (const auto* failure = links_.failure(group.ranks[static_cast<size_t>(rank)]))
      note_gone(group, rank, gone_by(failure->code));
  // Where questions are passed on, one at a time is enough: its end is told to all.
  if (links_.size() <= eager_ranks_ || group.inquirers.empty()) ask_all(group);
  inquiry.until = std::chrono::steady_clock::now() + hearing_;
  watch(inquiry.until);
  note_place(group, group.place.rank, group.whereabouts());
}

void Engine::ask_all(Membership& group) noexcept {
  group.inquiry->asked = true;
  group.inquirers[links_.rank()] = links_.rank();
  tell(group, {.kind = Notice::Kind::kWhere, .base = group.base, .about = links_.rank()});
}

void Engine::end_hearing(Membership& group) noexcept {
  auto& inquiry = *group.inquiry;
  if (inquiry.asked) return conclude(group);
  ask_all(group);
  inquiry.until += hearing_;
  watch(inquiry.until);
}

void Engine::note_gone(Membership& group, int rank, const char* why) noexcept {
  group.inquiry->seen.unreachable[rank] = why;
  conclude_if_complete(group);
}

void Engine::note_place(Membership& group, int rank, const RankProgress& place) noexcept {
  if (!group.inquiry || rank < 0 || group.inquiry->seen.unreachable.contains(rank)) return;
  group.inquiry->seen.progress[rank] = place;
  conclude_if_complete(group);
}

void Engine::conclude_if_complete(Membership& group) noexcept {
  const auto& seen = group.inquiry->seen;
  if (seen.progress.size() + seen.unreachable.size() == group.ranks.size()) conclude(group);
}

// Others may have ended since the first one did.
void Engine::add_ended(const ProgressReport& seen, std::vector<int>& culprits) {
  for (int rank = 0; rank < seen.size; ++rank)
    if (const auto gone = seen.unreachable.find(rank);
        gone != seen.unreachable.end() && gone->second == kEnded)
      if (!std::ranges::count(culprits, rank)) culprits.push_back(rank);
}

void Engine::conclude(Membership& group) noexcept {
  if (group.failure() != nullptr) return;
  const auto& inquiry = *group.inquiry;
  auto culprits = inquiry.culprits.empty() ? inquiry.seen.culprits() : inquiry.culprits;
  if (inquiry.code == Errc::kPeerFailed) add_ended(inquiry.seen, culprits);
  fail(group, inquiry.code, inquiry.why + "; " + inquiry.seen.format(), std::move(culprits));
  base::log(base::LogLevel::kWarning, "communicator '" + group.name + "', rank " +
                                          std::to_string(group.place.rank) +
                                          ", has ended: " + group.failure()->why());
}

// Ranks that are not linked to the one who asks hear of it from others, and answer the same way.
void Engine::on_question(Membership* group, int from, const Notice& question) noexcept {
  Notice answer{.kind = Notice::Kind::kHere,
                .base = question.base,
                .about = question.about,
                .who = links_.rank()};
  if (group == nullptr) {
    answer.place.is_member = 0;
    return send_notice(from, answer);
  }
  if (!group->inquirers.try_emplace(question.about, from).second) return;
  answer.place = group->whereabouts();
  send_notice(from, answer);
  if (links_.size() > eager_ranks_) tell(*group, question, from);
}

void Engine::on_answer(Membership& group, const Notice& answer) noexcept {
  if (answer.about == links_.rank())
    return note_place(group, group.rank_of(answer.who), answer.place);
  const auto asked = group.inquirers.find(answer.about);
  if (asked != group.inquirers.end()) send_notice(asked->second, answer);
}

}  // namespace torch::comms::ctran
