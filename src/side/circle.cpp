#include <algorithm>
#include <utility>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "side/family.hpp"
#include "side/graph.hpp"

namespace torch::comms::side {

Circle::Circle(std::shared_ptr<Family> family, uint64_t group, std::vector<int> ranks, int rank,
               std::shared_ptr<const Diary> diary)
    : family_(std::move(family)),
      group_(group),
      ranks_(std::move(ranks)),
      diary_(std::move(diary)),
      member_(group, rank, static_cast<int>(ranks_.size()), *diary_, family_->pace_) {
  for (const int near : member_.neighbours()) near_[ranks_[static_cast<size_t>(near)]] = near;
  family_->add(*this);
}

Circle::~Circle() { end(/*well=*/false); }

void Circle::close() noexcept { end(/*well=*/true); }

void Circle::depart(const std::vector<Posted>& posted, bool tells_all) noexcept {
  if (base::fork_generation() != family_->fork_generation_) return;
  const std::lock_guard lock(family_->mutex_);
  if (ended_ || std::exchange(has_told_, true)) return;
  try {
    Member::Post out;
    member_.close(out, posted, tells_all);
    family_->post(*this, out);
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kWarning,
              std::string("side channel: the others are not told of an end: ") + error.what());
  }
  family_->wake();
}

std::map<int, Member::Departure> Circle::departures() const {
  const std::lock_guard lock(family_->mutex_);
  return member_.departures();
}

void Circle::end(bool well) noexcept {
  if (base::fork_generation() != family_->fork_generation_) return;  // the parent's
  family_->remove(*this, well);
}

std::shared_ptr<Circle> Circle::split(const std::vector<int>& ranks, uint64_t count,
                                      std::shared_ptr<const Diary> diary) const {
  std::vector<int> members;
  int own = -1;
  for (const int rank : ranks) {
    members.push_back(ranks_[static_cast<size_t>(rank)]);
    if (members.back() == family_->rank_) own = static_cast<int>(members.size()) - 1;
  }
  const uint64_t seed = hash(&count, sizeof count, group_);
  const uint64_t group = hash(members.data(), members.size() * sizeof(int), seed);
  return std::make_shared<Circle>(family_, group, std::move(members), own, std::move(diary));
}

bool Circle::await_alarm(std::chrono::milliseconds limit) const {
  std::unique_lock lock(family_->mutex_);
  family_->changed_.wait_for(lock, limit, [this] { return ended_ || is_alarmed(); });
  return is_alarmed();
}

void Circle::catch_up() {
  if (base::fork_generation() == family_->fork_generation_) family_->catch_up();
}

std::optional<Circle::Failure> Circle::failure() const {
  if (!is_alarmed()) return std::nullopt;
  const std::lock_guard lock(family_->mutex_);
  const auto& end = member_.ended();
  const Moment ends = end ? end->since : kNever;
  if (const auto& mismatch = member_.mismatch())
    return Failure{Errc::kMismatch, mismatch->why, mismatch->culprits, ends};
  const int lost = member_.lost();
  // What others say of a rank that is seen to have failed is no news.
  if (end && std::ranges::count(end->why.culprits, lost) == 0) {
    auto seen = seen_by_others(end->why, end->rank);
    return Failure{seen.code, std::move(seen.why), std::move(seen.culprits), ends};
  }
  if (lost < 0) return std::nullopt;
  const auto& place = family_->places_[static_cast<size_t>(ranks_[static_cast<size_t>(lost)])];
  return Failure{Errc::kPeerFailed,
                 "rank " + std::to_string(lost) + " has failed: its process (" + place.who +
                     ") has ended, has closed the communicator, or cannot be reached",
                 {lost},
                 ends};
}

void Circle::compare(Moment began) {
  Member::Post out;
  const std::lock_guard lock(family_->mutex_);
  if (ended_) return;
  member_.compare(began, Family::now(), out);
  family_->post(*this, out);
  family_->wake();
}

std::optional<Circle::Failure> Circle::disagreement(std::chrono::milliseconds patience,
                                                    std::chrono::milliseconds limit) {
  // One question puts out others, whose ranks may have come further; so all ask again.
  constexpr std::chrono::milliseconds kAgain{100};
  {
    std::unique_lock lock(family_->mutex_);
    const auto is_over = [&] { return ended_ || is_alarmed(); };
    const auto until = Family::now() + patience + limit;
    bool over = family_->changed_.wait_for(lock, patience, is_over);
    for (auto left = until - Family::now(); !over && left > Moment(0);
         left = until - Family::now()) {
      Member::Post out;
      member_.suspect(Family::now(), out);
      family_->post(*this, out);
      family_->wake();
      over = family_->changed_.wait_for(lock, std::min<Moment>(kAgain, left), is_over);
    }
  }
  const auto found = failure();
  return found && found->code == Errc::kMismatch ? found : std::nullopt;
}

std::optional<Member::Report> Circle::ask() {
  Member::Post out;
  const std::lock_guard lock(family_->mutex_);
  if (ended_) return Member::Report{};
  member_.ask(Family::now(), out);
  family_->post(*this, out);
  family_->wake();
  return member_.report();
}

bool Circle::tell_end(const Ending& why) {
  Member::Post out;
  const std::lock_guard lock(family_->mutex_);
  if (ended_) return false;
  member_.end(why, Family::now(), out);
  family_->post(*this, out);
  family_->wake();
  ++telling_;
  return true;
}

void Circle::await_told(std::chrono::milliseconds limit) {
  std::unique_lock lock(family_->mutex_);
  family_->changed_.wait_for(lock, limit, [this] { return ended_ || member_.is_end_heard(); });
  --telling_;
  family_->changed_.notify_all();
}

void Circle::check(uint64_t number) {
  Member::Post out;
  const std::lock_guard lock(family_->mutex_);
  if (ended_) return;
  member_.check(number, Family::now(), out);
  family_->post(*this, out);
  family_->wake();
}

bool Circle::checked(uint64_t number, std::chrono::milliseconds tick) {
  std::unique_lock lock(family_->mutex_);
  family_->changed_.wait_for(lock, tick,
                             [&] { return ended_ || is_alarmed() || member_.checked() >= number; });
  return member_.checked() >= number;
}

}  // namespace torch::comms::side
