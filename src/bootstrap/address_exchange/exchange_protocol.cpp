#include "bootstrap/address_exchange/exchange_protocol.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace torch::comms::bootstrap {
namespace {

using Kind = ExchangeAction::Kind;

constexpr uint32_t bit(int round) { return uint32_t{1} << round; }
uint32_t folded(uint64_t instance) { return static_cast<uint32_t>(instance ^ (instance >> 32)); }
std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

ExchangeProtocol::ExchangeProtocol(int rank, int size,
                                   const ExchangeRetryPolicy& retry_policy) noexcept
    : rounds_{rank, size},
      retry_policy_(&retry_policy),
      probe_interval_(retry_policy.probe_after) {}

void ExchangeProtocol::start(Moment now, ExchangeActions& out) {
  end_ = retry_policy_->timeout < kNever - now ? now + retry_policy_->timeout : kNever;
  if (rounds_.size == 1) {
    phase_ = ExchangePhase::kDone;
    out.push_back({Kind::kDone});
    return;
  }
  out.push_back({Kind::kPublish});
  out.push_back({.kind = Kind::kLookUp, .peer = rounds_.source(0)});
}

void ExchangeProtocol::on_contact(Moment now, ExchangeActions& out) {
  if (phase_ != ExchangePhase::kStore) return;
  phase_ = ExchangePhase::kRequesting;
  request(now, out);
  if ((requested_ & bit(0)) != 0) serve(0, out);
}

void ExchangeProtocol::request(Moment now, ExchangeActions& out) {
  source_link_ = SourceLink::kConnecting;
  timer_ = now + retry_policy_->connect_timeout;
  out.push_back({.kind = Kind::kRequest, .round = round_, .peer = rounds_.source(round_)});
}

void ExchangeProtocol::on_connected() noexcept {
  if (phase_ != ExchangePhase::kRequesting || source_link_ != SourceLink::kConnecting) return;
  source_link_ = SourceLink::kConnected;
  timer_ = kNever;
}

void ExchangeProtocol::on_disconnected(Moment now, bool refused, ExchangeActions& out) {
  if (phase_ != ExchangePhase::kRequesting || source_link_ == SourceLink::kRetrying) return;
  source_link_ = SourceLink::kNone;
  refusals_ = refused ? static_cast<uint8_t>(refusals_ + 1) : uint8_t{0};
  if (refusals_ >= retry_policy_->max_refusals) {
    const int source = rounds_.source(round_);
    return fail(
        {Errc::kPeerFailed, source,
         rank_text(source) + " refused " + std::to_string(refusals_) +
             " connections in a row at the address that it published: its process has ended, or "
             "a firewall rejects them"},
        out);
  }
  retry(now);
}

void ExchangeProtocol::retry(Moment now) noexcept {
  source_link_ = SourceLink::kRetrying;
  Moment wait = retry_policy_->initial_interval;
  for (int i = 0; i < tries_ && wait < retry_policy_->max_interval; ++i) wait *= 2;
  timer_ = now + std::min(wait, retry_policy_->max_interval);
  if (tries_ < UINT8_MAX) ++tries_;
}

void ExchangeProtocol::on_response(Moment now, ExchangeActions& out) {
  if (phase_ != ExchangePhase::kRequesting || source_link_ == SourceLink::kRetrying) return;
  out.push_back({Kind::kDisconnect});
  source_link_ = SourceLink::kNone;
  timer_ = kNever;
  refusals_ = tries_ = 0;
  ++round_;
  if (round_ < rounds_.count()) {
    request(now, out);
  } else {
    phase_ = ExchangePhase::kServing;
    probe_ = now + probe_interval_;
  }
  if ((requested_ & bit(round_)) != 0) serve(round_, out);
  finish_if_served(out);
}

// Answers the client of `round`. Its response is what this rank knows after that many rounds.
void ExchangeProtocol::serve(int round, ExchangeActions& out) {
  responding_ |= bit(round);
  out.push_back({.kind = Kind::kRespond,
                 .round = static_cast<uint8_t>(round),
                 .peer = rounds_.client(round),
                 .link = links_[static_cast<size_t>(round)]});
}

void ExchangeProtocol::on_request(int round, uint32_t link, uint64_t instance,
                                  ExchangeActions& out) {
  const auto at = static_cast<size_t>(round);
  if (phase_ == ExchangePhase::kFailed) {
    served_ |= bit(round);
    out.push_back({.kind = Kind::kSendFailure, .link = link});
    return;
  }
  const bool known = instances_[at] != 0;
  if (known && instances_[at] != (folded(instance) | 1)) {
    out.push_back({.kind = Kind::kRejectDuplicate, .link = link});
    return;
  }
  // The newest connection of a process counts: a client connects again only if the last connection
  // failed.
  instances_[at] = folded(instance) | 1;
  links_[at] = link;
  requested_ |= bit(round);
  responding_ &= ~bit(round);
  served_ &= ~bit(round);
  if (round_ >= round && phase_ >= ExchangePhase::kRequesting) serve(round, out);
}

void ExchangeProtocol::on_served(int round, ExchangeActions& out) {
  served_ |= bit(round);
  finish_if_served(out);
}

void ExchangeProtocol::on_client_disconnected(int round, uint32_t link) noexcept {
  if ((requested_ & bit(round)) == 0 || links_[static_cast<size_t>(round)] != link) return;
  requested_ &= ~bit(round);
  responding_ &= ~bit(round);
}

int ExchangeProtocol::unserved() const noexcept { return rounds_.count() - std::popcount(served_); }

int ExchangeProtocol::first_unserved() const noexcept { return std::countr_one(served_); }

void ExchangeProtocol::finish_if_served(ExchangeActions& out) {
  if (phase_ != ExchangePhase::kServing || unserved() > 0) return;
  phase_ = ExchangePhase::kDone;
  timer_ = probe_ = kNever;
  out.push_back({Kind::kDone});
}

void ExchangeProtocol::probe(Moment now, ExchangeActions& out) {
  probe_interval_ = std::min<Moment>(probe_interval_ * 2, std::chrono::minutes(1));
  probe_ = now + probe_interval_;
  // A rank that is being answered now is alive as long as its connection is.
  for (int round = 0; round < rounds_.count(); ++round)
    if (((served_ | responding_) & bit(round)) == 0)
      out.push_back({.kind = Kind::kProbe, .peer = rounds_.client(round)});
}

void ExchangeProtocol::on_probed(int peer, bool alive, ExchangeActions& out) {
  if (phase_ != ExchangePhase::kServing || alive) return;
  // While the probe was under way, the peer may have requested its part, been served and exited.
  bool needed = false;
  for (int round = 0; round < rounds_.count(); ++round)
    needed |= rounds_.client(round) == peer && ((served_ | responding_) & bit(round)) == 0;
  if (!needed) return;
  fail({Errc::kPeerFailed, peer,
        rank_text(peer) +
            " does not listen at the address that it published any more: its process ended before "
            "the address exchange was complete"},
       out);
}

void ExchangeProtocol::on_peer_failure(int from, const FailureNotice& notice,
                                       ExchangeActions& out) {
  if (has_ended()) return;
  const bool from_source = phase_ == ExchangePhase::kRequesting && from == rounds_.source(round_);
  // If a client reports a timeout, it was waiting for this rank, so this rank's own timeout text is
  // closer to the cause.
  if (notice.code == Errc::kTimeout && !from_source) return fail(timeout_failure(), out);
  FailureNotice passed_on = notice;
  if (passed_on.peer < 0) passed_on.peer = from;
  fail(std::move(passed_on), out);
}

void ExchangeProtocol::on_failed(const FailureNotice& why, ExchangeActions& out) {
  if (!has_ended()) fail(why, out);
}

void ExchangeProtocol::on_time(Moment now, ExchangeActions& out) {
  if (has_ended()) return;
  if (now >= end_) return fail(timeout_failure(), out);
  if (now >= timer_) {
    if (source_link_ == SourceLink::kConnecting) {
      out.push_back({Kind::kDisconnect});
      retry(now);
    } else if (source_link_ == SourceLink::kRetrying) {
      request(now, out);
    }
  }
  if (now >= probe_) probe(now, out);
}

FailureNotice ExchangeProtocol::timeout_failure() const {
  const int peer =
      phase_ == ExchangePhase::kServing ? rounds_.client(first_unserved()) : rounds_.source(round_);
  return {Errc::kTimeout, peer, waiting_for()};
}

Moment ExchangeProtocol::next_time() const noexcept {
  return has_ended() ? kNever : std::min({end_, timer_, probe_});
}

std::string ExchangeProtocol::waiting_for() const {
  const std::string of = " of " + std::to_string(rounds_.count());
  const std::string round = ", round " + std::to_string(round_ + 1) + of;
  if (phase_ == ExchangePhase::kStore)
    return rank_text(rounds_.source(0)) + " has not published its address in the store";
  if (phase_ == ExchangePhase::kServing)
    return rank_text(rounds_.client(first_unserved())) + " has not requested its data, round " +
           std::to_string(first_unserved() + 1) + of;
  const auto source = rank_text(rounds_.source(round_));
  if (source_link_ == SourceLink::kConnected) return source + " has not answered" + round;
  return source + " could not be reached" + round;
}

void ExchangeProtocol::fail(FailureNotice notice, ExchangeActions& out) {
  if (source_link_ == SourceLink::kConnected)
    out.push_back({Kind::kSendFailureToSource});
  else if (source_link_ == SourceLink::kConnecting)
    out.push_back({Kind::kDisconnect});
  phase_ = ExchangePhase::kFailed;
  failure_ = std::move(notice);
  source_link_ = SourceLink::kNone;
  for (int round = 0; round < rounds_.count(); ++round) {
    if ((requested_ & ~served_ & bit(round)) == 0 || (responding_ & bit(round)) != 0) continue;
    served_ |= bit(round);
    out.push_back({.kind = Kind::kSendFailure, .link = links_[static_cast<size_t>(round)]});
  }
  out.push_back({Kind::kFailed});
}

}  // namespace torch::comms::bootstrap
