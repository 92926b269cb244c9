#include "side/member.hpp"

#include <algorithm>
#include <utility>

#include "side/disagreement.hpp"
#include "side/graph.hpp"

namespace torch::comms::side {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostPast = 16;
constexpr size_t kMostChecks = 64;
// A rank waits less for the answers of its neighbours than who asked it waits for its own.
constexpr milliseconds further(milliseconds patience) { return patience * 9 / 10; }

}  // namespace

Member::Member(uint64_t group, int rank, int size, const Diary& diary, const Pace& pace)
    : group_(group),
      rank_(rank),
      size_(size),
      diary_(diary),
      pace_(pace),
      neighbours_(neighbours_of(rank, size)) {}

Note Member::note(Note::Kind kind) const {
  Note made;
  made.kind = kind;
  made.group = group_;
  return made;
}

void Member::tell_all(const Note& note, int but, Post& out) const {
  for (const int neighbour : neighbours_)
    if (neighbour != but && !is_gone(neighbour)) out.emplace_back(neighbour, note);
}

void Member::close(Post& out, const std::vector<Posted>& posted, bool tells_all) {
  closed_ = true;
  auto told = note(Note::Kind::kClosed);
  told.number = diary_.about(0).place.called;
  // Also those that have closed it before: something of theirs may still wait for this rank.
  const auto tell = [&](int rank) {
    if (!posted.empty()) told.posted = posted[static_cast<size_t>(rank)];
    if (rank != rank_) out.emplace_back(rank, told);
  };
  for (int rank = 0; tells_all && rank < size_; ++rank) tell(rank);
  if (!tells_all) std::ranges::for_each(neighbours_, tell);
}

// ---- questions

void Member::compare(Moment began, Moment now, Post& out) {
  if (began == looked_at_ && now < next_look_) return;
  between_looks_ =
      began == looked_at_ ? std::min(between_looks_ * 2, pace_.longest_look) : pace_.first_look;
  looked_at_ = began;
  next_look_ = now + between_looks_;
  if (now - took_part_ < pace_.first_look) return;
  begin(Question::Aim::kCompare, now, out);
}

void Member::suspect(Moment now, Post& out) {
  // Asking anew would put out a question whose answers may be on their way.
  if (wave_ && wave_->parent < 0 && wave_->question.number == diary_.open()) return;
  begin(Question::Aim::kCompare, now, out);
}

void Member::ask(Moment now, Post& out) {
  if (asked_until_ != kNever) return;
  if (report_ && now - report_->since < 2 * pace_.hearing) return;
  report_.reset();
  asked_until_ = now + pace_.hearing;
  begin(Question::Aim::kReport, now, out);
}

void Member::end(const Ending& why, Moment now, Post& out) {
  // Where another one ends all hear of that one.
  if (ends_ || ended_) return;
  ends_ = why.code;
  begin(Question::Aim::kEnd, now, out, why);
}

void Member::begin(Question::Aim aim, Moment now, Post& out, const Ending& why) {
  const uint64_t number = diary_.open();
  if (number == 0 && aim == Question::Aim::kCompare) return;
  auto asked = note(Note::Kind::kAsk);
  asked.question = {.number = number, .aim = aim, .asker = rank_, .serial = ++serial_};
  asked.ending = why;
  if (wave_ && !asked.question.beats(wave_->question)) return;
  spread(std::move(asked), -1, pace_.hearing, now, out);
}

void Member::spread(Note asked, int parent, milliseconds patience, Moment now, Post& out) {
  drop_wave();
  took_part_ = now;
  auto& wave = wave_.emplace(Wave{});
  wave.question = asked.question;
  wave.parent = parent;
  wave.until = now + patience;
  wave.answers.add(rank_, diary_.about(asked.question.number));
  for (const auto& [rank, how] : gone_) wave.answers.add(rank, {.state = how});
  asked.patience_ms = static_cast<uint32_t>(further(patience).count());
  for (const int neighbour : neighbours_)
    if (neighbour != parent && !is_gone(neighbour)) wave.waits_for.insert(neighbour);
  tell_all(asked, parent, out);
  if (wave.waits_for.empty()) end_wave(now, out);
}

void Member::drop_wave() {
  if (!wave_) return;
  past_.push_back(wave_->question);
  if (past_.size() > kMostPast) past_.erase(past_.begin());
  wave_.reset();
}

void Member::on_ask(int from, const Note& asked, Moment now, Post& out) {
  const bool ends = asked.question.aim == Question::Aim::kEnd && asked.question.asker != rank_;
  if (ends && !ended_) ended_ = {asked.question.asker, asked.ending, now};
  if (wave_ && wave_->question == asked.question) return hear(from, now, out);
  if (std::ranges::find(past_, asked.question) != past_.end()) return;
  if (wave_ && !asked.question.beats(wave_->question)) return;
  spread(asked, from, std::min(milliseconds(asked.patience_ms), pace_.hearing), now, out);
}

void Member::hear(int from, Moment now, Post& out) {
  if (!wave_ || wave_->waits_for.erase(from) == 0) return;
  if (wave_->waits_for.empty()) end_wave(now, out);
}

void Member::end_wave(Moment now, Post& out) {
  const Wave wave = *wave_;
  drop_wave();
  if (wave.parent >= 0) {
    auto told = note(Note::Kind::kTell);
    told.question = wave.question;
    told.answers = wave.answers;
    if (!is_gone(wave.parent)) out.emplace_back(wave.parent, told);
    return;
  }
  // Who ends in the middle of things has left its call, and those who are on their way to it may
  // have called something later.
  const bool is_way_out = wave.question.aim == Question::Aim::kEnd && ends_ == Errc::kAborted;
  if (!mismatch_ && !is_way_out && disagrees(wave.answers, wave.question, now, out)) return;
  if (wave.question.aim == Question::Aim::kCompare) return;
  const auto seen = wave.answers.sighting(size_, wave.question.number, pace_.hearing);
  auto found = note(Note::Kind::kFound);
  found.question = wave.question;
  found.culprits = seen.culprits();
  found.why = seen.words();
  publish(found, now, out);
}

bool Member::disagrees(const Answers& answers, const Question& question, Moment now, Post& out) {
  const uint64_t number = question.number;
  std::unordered_map<int, Fingerprint> prints;
  const auto alike = [&] {
    return std::ranges::all_of(
        prints, [&](const auto& print) { return print.second == prints.begin()->second; });
  };
  // The first one counts: a rank that was done with it meets what is left of it later.
  uint64_t at = number - std::min<uint64_t>(number, Answer::kPrints);
  do prints = answers.prints(++at);
  while (alike() && at < number);
  if (number == 0 || alike()) return false;
  const auto what = disagreement(prints, answers.sighting(size_, number, pace_.hearing).silent());
  auto found = note(Note::Kind::kFound);
  found.question = question;
  found.number = at;
  found.culprits = what.ranks;
  found.mismatch = true;
  found.why = what.why;
  publish(found, now, out);
  return true;
}

void Member::publish(const Note& found, Moment now, Post& out) {
  keep(found, now);
  tell_all(found, -1, out);
}

void Member::keep(const Note& found, Moment now) {
  last_found_ = found.question;
  if (found.question.aim == Question::Aim::kEnd) end_heard_ = true;
  asked_until_ = kNever;
  if (found.mismatch) {
    if (!mismatch_) mismatch_ = {found.number, found.why, found.culprits};
    return;
  }
  report_ = {found.why, found.culprits, now};
}

void Member::on_found(int from, const Note& found, Moment now, Post& out) {
  if (found.mismatch ? mismatch_.has_value() : found.question == last_found_) return;
  keep(found, now);
  tell_all(found, from, out);
}

// ---- checks

void Member::check(uint64_t number, Moment now, Post& out) {
  auto& check = checks_[number];
  check.own = true;
  check.answers.add(rank_, diary_.about(number));
  check_further(number, now, out);
}

void Member::check_further(uint64_t number, Moment now, Post& out) {
  const auto at = checks_.find(number);
  if (at == checks_.end() || !at->second.own) return;
  for (const int child : children_of(rank_, size_))
    if (!is_gone(child) && !at->second.heard.contains(child)) return;
  const auto answers = std::move(at->second.answers);
  checks_.erase(at);
  if (rank_ != 0) {
    auto told = note(Note::Kind::kCheck);
    told.number = number;
    told.answers = answers;
    if (!is_gone(parent_of(rank_))) out.emplace_back(parent_of(rank_), told);
    return;
  }
  if (disagrees(answers, {.number = number, .asker = rank_, .serial = ++serial_}, now, out)) return;
  auto go = note(Note::Kind::kGo);
  go.number = number;
  on_note(-1, go, now, out);
}

// ---- what happens

void Member::on_note(int from, const Note& note, Moment now, Post& out) {
  const bool ends = note.kind == Note::Kind::kClosed || note.kind == Note::Kind::kLost;
  if (closed_ && !ends) return;
  switch (note.kind) {
    case Note::Kind::kLost:
      return note_gone(note.about, Answer::State::kLost, now, out);
    case Note::Kind::kClosed:
      departures_.try_emplace(from, Departure{note.number, note.posted});
      return note_gone(from, Answer::State::kClosed, now, out);
    case Note::Kind::kAsk:
      return on_ask(from, note, now, out);
    case Note::Kind::kTell:
      if (!wave_ || wave_->question != note.question) return;
      wave_->answers.merge(note.answers);
      return hear(from, now, out);
    case Note::Kind::kFound:
      return on_found(from, note, now, out);
    case Note::Kind::kCheck: {
      if (checks_.size() >= kMostChecks && !checks_.contains(note.number)) return;
      auto& check = checks_[note.number];
      check.answers.merge(note.answers);
      check.heard.insert(from);
      return check_further(note.number, now, out);
    }
    case Note::Kind::kGo:
      checked_ = std::max(checked_, note.number);
      for (const int child : children_of(rank_, size_))
        if (!is_gone(child)) out.emplace_back(child, note);
      return;
  }
}

void Member::on_lost(int neighbour, Moment now, Post& out) {
  note_gone(neighbour, Answer::State::kLost, now, out);
}

void Member::note_gone(int rank, Answer::State how, Moment now, Post& out) {
  if (rank < 0 || rank == rank_ || !gone_.try_emplace(rank, how).second) return;
  if (how == Answer::State::kLost) {
    if (lost_ < 0) lost_ = rank;
    auto told = note(Note::Kind::kLost);
    told.about = rank;
    tell_all(told, -1, out);
  }
  if (wave_) wave_->answers.add(rank, {.state = how});
  hear(rank, now, out);
  std::vector<uint64_t> open;
  open.reserve(checks_.size());
  for (const auto& [number, check] : checks_) open.push_back(number);
  for (const uint64_t number : open) check_further(number, now, out);
}

void Member::on_time(Moment now, Post& out) {
  if (wave_ && now >= wave_->until) end_wave(now, out);
  if (now < asked_until_) return;
  // The question that put out this rank's own one has come to nothing.
  Answers answers;
  const uint64_t number = diary_.open();
  answers.add(rank_, diary_.about(number));
  for (const auto& [rank, how] : gone_) answers.add(rank, {.state = how});
  const auto seen = answers.sighting(size_, number, pace_.hearing);
  report_ = {seen.words(), seen.culprits(), now};
  asked_until_ = kNever;
}

Moment Member::next_time() const noexcept {
  return std::min(wave_ ? wave_->until : kNever, asked_until_);
}

}  // namespace torch::comms::side
