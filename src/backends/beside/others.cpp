#include "backends/beside/others.hpp"

#include <thread>

#include <torchcomms/base/env.hpp>

#include "backends/beside/record.hpp"
#include "base/log.hpp"
#include "base/op_order.hpp"
#include "base/peer_error_text.hpp"
#include "bootstrap/exchange/blob_exchange.hpp"
#include "core/hint.hpp"
#include "core/hint_table.hpp"
#include "core/interruptible_call.hpp"
#include "core/rendezvous.hpp"
#include "core/store_adapter.hpp"

namespace torch::comms::beside {
namespace {

// How long ranks that disagree wait for those that are behind, and for what they say.
constexpr std::chrono::milliseconds kSkew{50}, kHearing{2000};
// Until a question where everybody is has its answer, and between looks for it.
constexpr std::chrono::milliseconds kAnswered{600}, kLook{5};

// How long all ranks have for what was done before another one ended the communicator, whose
// library waits twice as long once all know of it.
constexpr std::chrono::milliseconds kStillDone{40};
// Until all ranks of a host have looked, twice, whether one of them has ended, or have come to the
// limit of what began at about the same time.
constexpr std::chrono::milliseconds kSeenByAll{250};

// How long after a wait for a failure in vain nobody waits for one.
constexpr std::chrono::milliseconds kAgain{1000};
// How often whoever waits for the others' words looks for something else.
constexpr std::chrono::milliseconds kTick{20};

bool is_long_ago(monitor::Moment moment) {
  return Clock::now().time_since_epoch() - moment > kStillDone;
}

// The failure, where another rank has ended the communicator.
std::optional<monitor::GroupMonitor::GroupFailure> end_in(const monitor::GroupMonitor* circle) {
  if (circle == nullptr) return std::nullopt;
  auto failure = circle->failure();
  return failure && failure->abort_known_since != monitor::kNever ? failure : std::nullopt;
}

bootstrap::BlobExchangeParams participant(const Rendezvous& met, const std::string& name) {
  return {.key_scope = "side",
          .name = name,
          .rank = met.rank,
          .size = met.size,
          .blob = {},
          .timeout = met.timeout,
          .deadline = met.deadline,
          .interrupt_check = check_interrupt};
}

}  // namespace

CommError has_left(int rank, const std::string& why, const Context& context) {
  auto where = context;
  where.peer = rank;
  return CommError(Errc::kPeerFailed, why, where);
}

std::optional<CommError> Others::left_before(const Context& context, uint64_t number) const {
  if (!base::is_collective_sequence(number)) return std::nullopt;
  for (const auto& [rank, departure] : departures()) {
    if (departure.last >= number) continue;
    // The departed rank told of a disagreement before it closed the communicator.
    const auto failure = circle_->failure();
    if (failure && failure->code == Errc::kMismatch) return error_of(*failure, context);
    return has_left(rank,
                    base::peer_closed_text(rank) + ", after its collective number " +
                        std::to_string(departure.last),
                    context);
  }
  return std::nullopt;
}

CommError error_of(const monitor::GroupMonitor::GroupFailure& failure, const Context& context) {
  auto where = context;
  where.culprits = failure.culprits;
  return CommError(failure.code, failure.reason, where);
}

Wishes wishes_of(const CommOptions& options) {
  Wishes wishes;
  wishes.side_channel = options.getHint<bool>(
      hint::kSideChannel.name, env_to_value<bool>("TORCHCOMM_SIDE_CHANNEL", wishes.side_channel));
  wishes.interface = options.getHint<std::string>(
      hint::kSideChannelInterface.name,
      env_to_value<std::string>("TORCHCOMM_SIDE_CHANNEL_INTERFACE", ""));
  wishes.check_calls = is_call_check_enabled(options);
  return wishes;
}

std::string note_of(const Wishes& wishes) {
  return "tells of failures; calls are compared " +
         std::string(wishes.check_calls ? "before they begin" : "when they are late");
}

std::optional<CommError> Others::failure(const Context& context,
                                         std::chrono::milliseconds patience) {
  if (!is_alarmed()) return std::nullopt;
  const auto failure = circle_->failure();
  if (!failure) return std::nullopt;
  if (patience.count() > 0 && failure->abort_known_since != monitor::kNever) {
    if (!is_long_ago(failure->abort_known_since)) return std::nullopt;
  } else if (patience.count() > 0 && failure->code == Errc::kPeerFailed) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (told_ == Clock::time_point{}) told_ = now;
    if (now - told_ < patience) return std::nullopt;
  }
  return error_of(*failure, context);
}

bool Others::read_all(bool overslept) noexcept {
  try {
    const bool knew = is_ended();
    circle_->drain_incoming();
    if (is_ended() && (overslept || !knew)) overslept_ = true;
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError, std::string("side channel: ") + e.what());
  }
  return true;
}

std::optional<CommError> Others::ended(const Context& context) const {
  const auto end = end_in(circle_.get());
  const bool counts = end && (overslept_ || is_long_ago(end->abort_known_since));
  return counts ? std::optional(error_of(*end, context)) : std::nullopt;
}

bool Others::is_ended() const { return end_in(circle_.get()).has_value(); }

bool Others::tell_end(const CommError& why) {
  const bool is_everybodys = why.code() == Errc::kPeerFailed || why.code() == Errc::kTimeout;
  if (!circle_) return neighbours_ && is_everybodys;
  monitor::AbortReason ending{why.code(), why.why(), why.context().culprits};
  // What passed its limit here need not be what they wait in. Unless others have told of it here.
  if (const auto& op = why.context().op;
      why.code() == Errc::kTimeout && !op.empty() && !ending.reason.starts_with("rank "))
    ending.reason = op + ": " + ending.reason;
  return circle_->announce_abort(ending);
}

void Others::await_told() {
  if (circle_) circle_->wait_abort_acknowledged(kToldAll);
  std::this_thread::sleep_for(circle_ ? 2 * kStillDone : kSeenByAll);
}

std::optional<CommError> Others::await_failure(const Context& context,
                                               std::chrono::milliseconds limit) {
  if (!circle_) return std::nullopt;
  {
    const std::lock_guard lock(mutex_);
    if (Clock::now() - awaited_ < kAgain) limit = {};
  }
  if (circle_->wait_for_failure(limit)) return failure(context);
  const std::lock_guard lock(mutex_);
  awaited_ = Clock::now();
  return std::nullopt;
}

std::optional<CommError> Others::lost_rank(const Context& context) {
  const std::unique_lock lock(mutex_, std::try_to_lock);  // whoever is looking will find it
  if (!lock || !neighbours_) return std::nullopt;
  const auto ended = neighbours_->first_exited();
  // At the second look: what it did before its end may suffice.
  if (std::exchange(lost_, ended.rank) != ended.rank || ended.rank < 0) return std::nullopt;
  auto where = context;
  where.peer = ended.rank;
  return CommError(Errc::kPeerFailed,
                   "rank " + std::to_string(ended.rank) + " has failed: its process (" +
                       std::to_string(ended.pid) + ") has ended",
                   where);
}

void Others::compare(Clock::time_point began) {
  if (circle_) circle_->check_mismatch_later(began.time_since_epoch());
}

std::optional<CommError> Others::disagreement(const Context& context) {
  if (!circle_) return std::nullopt;
  const auto failure = circle_->find_mismatch(kSkew, kHearing);
  return failure ? std::optional(error_of(*failure, context)) : std::nullopt;
}

std::optional<Others::Where> Others::whereabouts() {
  if (circle_) {
    const auto report = circle_->query_progress();
    if (!report) return std::nullopt;
    return Where{report->text.empty() ? "" : "; " + report->text, report->culprits};
  }
  const std::lock_guard lock(mutex_);
  const auto text = neighbours_ ? neighbours_->format_status() : "";
  return Where{text.empty() ? "" : ". As this host's ranks have recorded it: " + text};
}

Others::Where Others::await_whereabouts() {
  const auto until = Clock::now() + kAnswered;
  while (true) {
    if (auto where = whereabouts()) return *where;
    if (Clock::now() >= until) return {};
    std::this_thread::sleep_for(kLook);
  }
}

std::optional<Others::Where> Others::await_all(uint64_t number, Clock::time_point until,
                                               const std::function<void()>& look) {
  if (!circle_) return std::nullopt;
  circle_->start_consistency_check(number);
  while (!circle_->wait_consistent(number, kTick)) {
    look();
    if (Clock::now() < until) continue;
    if (auto where = whereabouts()) return where;
  }
  return std::nullopt;
}

std::shared_ptr<monitor::GroupMonitor> open_side_channel(const Rendezvous& met,
                                                         const std::string& name,
                                                         const std::string& interface,
                                                         std::shared_ptr<const Record> record) {
  bool exchanges = false;
  const auto tell_all = [&](std::string mine) {
    exchanges = true;
    auto self = participant(met, name);
    self.blob = std::move(mine);
    self.interface = interface;
    StoreKeyValue store(met.store, met.deadline, {}, met.address);
    auto told = bootstrap::exchange_blobs(store, self);
    return monitor::MonitorNetwork::MonitorExchangeResult{std::move(told.blobs), told.secret};
  };
  try {
    return monitor::MonitorNetwork::make(met.rank, met.size, interface, tell_all)
        ->world_group(std::move(record));
  } catch (const CommError& e) {
    if (!exchanges) decline_side_channel(met, name, e);
    throw;
  }
}

void decline_side_channel(const Rendezvous& met, const std::string& name,
                          const CommError& error) noexcept {
  try {
    StoreKeyValue store(met.store, met.deadline, {}, met.address);
    bootstrap::decline_exchange(store, participant(met, name), error);
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kDebug, std::string("the others do not learn why: ") + e.what());
  }
}

}  // namespace torch::comms::beside
