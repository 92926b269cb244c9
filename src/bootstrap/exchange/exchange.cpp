#include "bootstrap/exchange/exchange.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace torch::comms::bootstrap {
namespace {

using Kind = Action::Kind;

constexpr uint32_t bit(int round) { return uint32_t{1} << round; }
uint32_t folded(uint64_t instance) { return static_cast<uint32_t>(instance ^ (instance >> 32)); }
std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

Exchange::Exchange(int rank, int size, const Pace& pace) noexcept
    : rounds_{rank, size}, pace_(&pace), probing_(pace.probing) {}

void Exchange::start(Moment now, Actions& out) {
  end_ = pace_->limit < kNever - now ? now + pace_->limit : kNever;
  if (rounds_.size == 1) {
    phase_ = Phase::kDone;
    out.push_back({Kind::kDone});
    return;
  }
  out.push_back({Kind::kPublish});
  out.push_back({.kind = Kind::kLookUp, .peer = rounds_.source(0)});
}

void Exchange::on_contact(Moment now, Actions& out) {
  if (phase_ != Phase::kStore) return;
  phase_ = Phase::kAsking;
  ask(now, out);
  if ((asked_ & bit(0)) != 0) serve(0, out);
}

void Exchange::ask(Moment now, Actions& out) {
  link_ = Link::kConnecting;
  timer_ = now + pace_->connecting;
  out.push_back({.kind = Kind::kAsk, .round = round_, .peer = rounds_.source(round_)});
}

void Exchange::on_connected() noexcept {
  if (phase_ != Phase::kAsking || link_ != Link::kConnecting) return;
  link_ = Link::kConnected;
  timer_ = kNever;
}

void Exchange::on_lost(Moment now, bool refused, Actions& out) {
  if (phase_ != Phase::kAsking || link_ == Link::kRetrying) return;
  link_ = Link::kNone;
  refusals_ = refused ? static_cast<uint8_t>(refusals_ + 1) : uint8_t{0};
  if (refusals_ >= pace_->refusals) {
    const int source = rounds_.source(round_);
    return fail({Errc::kPeerFailed, source,
                 rank_text(source) + " refused " + std::to_string(refusals_) +
                     " connections in a row where it had listened: its process has ended, or a "
                     "firewall rejects them"},
                out);
  }
  retry(now);
}

void Exchange::retry(Moment now) noexcept {
  link_ = Link::kRetrying;
  Moment wait = pace_->first_retry;
  for (int i = 0; i < tries_ && wait < pace_->longest_retry; ++i) wait *= 2;
  timer_ = now + std::min(wait, pace_->longest_retry);
  if (tries_ < UINT8_MAX) ++tries_;
}

void Exchange::on_answer(Moment now, Actions& out) {
  if (phase_ != Phase::kAsking || link_ == Link::kRetrying) return;
  out.push_back({Kind::kHangUp});
  link_ = Link::kNone;
  timer_ = kNever;
  refusals_ = tries_ = 0;
  ++round_;
  if (round_ < rounds_.number()) {
    ask(now, out);
  } else {
    phase_ = Phase::kServing;
    probe_ = now + probing_;
  }
  if ((asked_ & bit(round_)) != 0) serve(round_, out);
  finish_if_served(out);
}

// What a client of `round` asks for is what this rank knows once that many rounds are over.
void Exchange::serve(int round, Actions& out) {
  answering_ |= bit(round);
  out.push_back({.kind = Kind::kAnswer,
                 .round = static_cast<uint8_t>(round),
                 .peer = rounds_.client(round),
                 .link = links_[static_cast<size_t>(round)]});
}

void Exchange::on_ask(int round, uint32_t link, uint64_t instance, Actions& out) {
  const auto at = static_cast<size_t>(round);
  if (phase_ == Phase::kFailed) {
    served_ |= bit(round);
    out.push_back({.kind = Kind::kTell, .link = link});
    return;
  }
  const bool known = instances_[at] != 0;
  if (known && instances_[at] != (folded(instance) | 1)) {
    out.push_back({.kind = Kind::kRefuse, .link = link});
    return;
  }
  // Of one process the newest connection counts: it would not come if the last one were good.
  instances_[at] = folded(instance) | 1;
  links_[at] = link;
  asked_ |= bit(round);
  answering_ &= ~bit(round);
  served_ &= ~bit(round);
  if (round_ >= round && phase_ >= Phase::kAsking) serve(round, out);
}

void Exchange::on_served(int round, Actions& out) {
  served_ |= bit(round);
  finish_if_served(out);
}

void Exchange::on_gone(int round, uint32_t link) noexcept {
  if ((asked_ & bit(round)) == 0 || links_[static_cast<size_t>(round)] != link) return;
  asked_ &= ~bit(round);
  answering_ &= ~bit(round);
}

int Exchange::unserved() const noexcept { return rounds_.number() - std::popcount(served_); }

int Exchange::first_unserved() const noexcept { return std::countr_one(served_); }

void Exchange::finish_if_served(Actions& out) {
  if (phase_ != Phase::kServing || unserved() > 0) return;
  phase_ = Phase::kDone;
  timer_ = probe_ = kNever;
  out.push_back({Kind::kDone});
}

void Exchange::probe(Moment now, Actions& out) {
  probing_ = std::min<Moment>(probing_ * 2, std::chrono::minutes(1));
  probe_ = now + probing_;
  // Who is being answered just now is alive as far as its connection is.
  for (int round = 0; round < rounds_.number(); ++round)
    if (((served_ | answering_) & bit(round)) == 0)
      out.push_back({.kind = Kind::kProbe, .peer = rounds_.client(round)});
}

void Exchange::on_probed(int peer, bool alive, Actions& out) {
  if (phase_ != Phase::kServing || alive) return;
  // It may have asked, and been served, and gone for good, while the probe was on its way.
  bool needed = false;
  for (int round = 0; round < rounds_.number(); ++round)
    needed |= rounds_.client(round) == peer && ((served_ | answering_) & bit(round)) == 0;
  if (!needed) return;
  fail({Errc::kPeerFailed, peer,
        rank_text(peer) +
            " does not listen any more where it had: its process has ended before it knew all"},
       out);
}

void Exchange::on_notice(int from, const Notice& notice, Actions& out) {
  if (ended()) return;
  const bool from_source = phase_ == Phase::kAsking && from == rounds_.source(round_);
  // A client whose time is up was waiting for this rank, which is nearer to what went wrong.
  if (notice.code == Errc::kTimeout && !from_source) return fail(late(), out);
  Notice passed_on = notice;
  if (passed_on.peer < 0) passed_on.peer = from;
  fail(std::move(passed_on), out);
}

void Exchange::on_failed(const Notice& why, Actions& out) {
  if (!ended()) fail(why, out);
}

void Exchange::on_time(Moment now, Actions& out) {
  if (ended()) return;
  if (now >= end_) return fail(late(), out);
  if (now >= timer_) {
    if (link_ == Link::kConnecting) {
      out.push_back({Kind::kHangUp});
      retry(now);
    } else if (link_ == Link::kRetrying) {
      ask(now, out);
    }
  }
  if (now >= probe_) probe(now, out);
}

Notice Exchange::late() const {
  const int peer =
      phase_ == Phase::kServing ? rounds_.client(first_unserved()) : rounds_.source(round_);
  return {Errc::kTimeout, peer, waiting_for()};
}

Moment Exchange::next_time() const noexcept {
  return ended() ? kNever : std::min({end_, timer_, probe_});
}

std::string Exchange::waiting_for() const {
  const std::string of = " of " + std::to_string(rounds_.number());
  const std::string round = ", round " + std::to_string(round_ + 1) + of;
  if (phase_ == Phase::kStore)
    return rank_text(rounds_.source(0)) + " has not put its contact into the store";
  if (phase_ == Phase::kServing)
    return rank_text(rounds_.client(first_unserved())) + " has not asked for its part, round " +
           std::to_string(first_unserved() + 1) + of;
  const auto source = rank_text(rounds_.source(round_));
  if (link_ == Link::kConnected) return source + " has not answered" + round;
  return source + " could not be reached" + round;
}

void Exchange::fail(Notice notice, Actions& out) {
  if (link_ == Link::kConnected)
    out.push_back({Kind::kTellSource});
  else if (link_ == Link::kConnecting)
    out.push_back({Kind::kHangUp});
  phase_ = Phase::kFailed;
  failure_ = std::move(notice);
  link_ = Link::kNone;
  for (int round = 0; round < rounds_.number(); ++round) {
    if ((asked_ & ~served_ & bit(round)) == 0 || (answering_ & bit(round)) != 0) continue;
    served_ |= bit(round);
    out.push_back({.kind = Kind::kTell, .link = links_[static_cast<size_t>(round)]});
  }
  out.push_back({Kind::kFailed});
}

}  // namespace torch::comms::bootstrap
