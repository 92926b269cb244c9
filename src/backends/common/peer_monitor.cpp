#include "backends/common/peer_monitor.hpp"

#include <thread>

#include <torchcomms/base/env.hpp>

#include "backends/common/collective_log.hpp"
#include "base/net/peer_error_text.hpp"
#include "base/op_order.hpp"
#include "base/os/log.hpp"
#include "bootstrap/address_exchange/blob_exchange.hpp"
#include "core/options/hint.hpp"
#include "core/options/hint_table.hpp"
#include "core/rendezvous/rendezvous.hpp"
#include "core/rendezvous/store_adapter.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms::common {
namespace {

// When ranks disagree: how long to wait for ranks that have not called yet, and for the replies.
constexpr std::chrono::milliseconds kSkew{50}, kReplyTimeout{2000};
// The timeout of wait_for_progress(), and the interval at which it polls.
constexpr std::chrono::milliseconds kProgressTimeout{700}, kProgressPollInterval{5};

// How long ranks may still report operations as complete that finished before a peer aborted the
// communicator. The aborting rank waits twice as long before the library aborts, once all peers
// know.
constexpr std::chrono::milliseconds kCompletionGrace{40};
// In this time all ranks of a host search twice for exited ranks, or reach the timeout of an
// operation that began at about the same time.
constexpr std::chrono::milliseconds kLocalDetectionTime{250};

// After a wait for a failure without result, later waits within this time return at once.
constexpr std::chrono::milliseconds kFailureWaitCooldown{1000};
// How often a wait for the peers' replies is interrupted for other checks.
constexpr std::chrono::milliseconds kPeerMonitorPollInterval{20};

bool is_past_completion_grace(monitor::Moment moment) {
  return Clock::now().time_since_epoch() - moment > kCompletionGrace;
}

// Returns: the failure, if a peer has aborted the communicator.
std::optional<monitor::GroupMonitor::GroupFailure> abort_in(
    const monitor::GroupMonitor* group_monitor) {
  if (group_monitor == nullptr) return std::nullopt;
  auto failure = group_monitor->failure();
  return failure && failure->abort_known_since != monitor::kNever ? failure : std::nullopt;
}

bootstrap::BlobExchangeParams exchange_params(const Rendezvous& rendezvous,
                                              const std::string& name) {
  return {.key_scope = "side",
          .name = name,
          .rank = rendezvous.rank,
          .size = rendezvous.size,
          .blob = {},
          .timeout = rendezvous.timeout,
          .deadline = rendezvous.deadline,
          .interrupt_check = check_interrupt};
}

}  // namespace

CommError peer_closed_error(int rank, const std::string& why, const Context& context) {
  auto where = context;
  where.peer = rank;
  return CommError(Errc::kPeerFailed, why, where);
}

std::optional<CommError> PeerMonitor::closed_before(const Context& context, uint64_t number) const {
  if (!base::is_collective_sequence(number)) return std::nullopt;
  for (const auto& [rank, peer_close] : peer_closes()) {
    if (peer_close.last >= number) continue;
    // The peer reported the mismatch before it closed the communicator.
    const auto failure = group_monitor_->failure();
    if (failure && failure->code == Errc::kMismatch) return to_comm_error(*failure, context);
    return peer_closed_error(rank,
                             base::peer_closed_text(rank) + ", after its collective number " +
                                 std::to_string(peer_close.last),
                             context);
  }
  return std::nullopt;
}

CommError to_comm_error(const monitor::GroupMonitor::GroupFailure& failure,
                        const Context& context) {
  auto where = context;
  where.culprits = failure.culprits;
  return CommError(failure.code, failure.reason, where);
}

MonitorOptions parse_monitor_options(const CommOptions& options) {
  MonitorOptions monitor_options;
  monitor_options.is_enabled = options.getHint<bool>(
      hint::kSideChannel.name,
      env_to_value<bool>("TORCHCOMM_SIDE_CHANNEL", monitor_options.is_enabled));
  monitor_options.interface = options.getHint<std::string>(
      hint::kSideChannelInterface.name,
      env_to_value<std::string>("TORCHCOMM_SIDE_CHANNEL_INTERFACE", ""));
  monitor_options.check_before_start = is_call_check_enabled(options);
  return monitor_options;
}

std::string describe_monitor(const MonitorOptions& options) {
  return "reports failed ranks; calls are compared " +
         std::string(options.check_before_start ? "before they begin" : "when they are late");
}

std::optional<CommError> PeerMonitor::failure(const Context& context,
                                              std::chrono::milliseconds grace) {
  if (!has_failure()) return std::nullopt;
  const auto failure = group_monitor_->failure();
  if (!failure) return std::nullopt;
  if (grace.count() > 0 && failure->abort_known_since != monitor::kNever) {
    if (!is_past_completion_grace(failure->abort_known_since)) return std::nullopt;
  } else if (grace.count() > 0 && failure->code == Errc::kPeerFailed) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (failure_seen_at_ == Clock::time_point{}) failure_seen_at_ = now;
    if (now - failure_seen_at_ < grace) return std::nullopt;
  }
  return to_comm_error(*failure, context);
}

bool PeerMonitor::drain_incoming(bool polled_late) noexcept {
  try {
    const bool was_aborted = is_aborted_by_peer();
    group_monitor_->drain_incoming();
    if (is_aborted_by_peer() && (polled_late || !was_aborted)) was_suspended_ = true;
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError, std::string("side channel: ") + e.what());
  }
  return true;
}

std::optional<CommError> PeerMonitor::abort_error(const Context& context) const {
  const auto failure = abort_in(group_monitor_.get());
  const bool takes_effect =
      failure && (was_suspended_ || is_past_completion_grace(failure->abort_known_since));
  return takes_effect ? std::optional(to_comm_error(*failure, context)) : std::nullopt;
}

bool PeerMonitor::is_aborted_by_peer() const { return abort_in(group_monitor_.get()).has_value(); }

bool PeerMonitor::announce_abort(const CommError& why) {
  const bool affects_all_ranks = why.code() == Errc::kPeerFailed || why.code() == Errc::kTimeout;
  if (!group_monitor_) return local_peers_ && affects_all_ranks;
  monitor::AbortReason reason{why.code(), why.why(), why.context().culprits};
  // The text names the operation that timed out here, because peers may wait in another one. A text
  // that came from a peer stays as it is.
  if (const auto& op = why.context().op;
      why.code() == Errc::kTimeout && !op.empty() && !reason.reason.starts_with("rank "))
    reason.reason = op + ": " + reason.reason;
  return group_monitor_->announce_abort(reason);
}

void PeerMonitor::wait_abort_acknowledged() {
  if (group_monitor_) group_monitor_->wait_abort_acknowledged(kAbortAckTimeout);
  std::this_thread::sleep_for(group_monitor_ ? 2 * kCompletionGrace : kLocalDetectionTime);
}

std::optional<CommError> PeerMonitor::wait_for_failure(const Context& context,
                                                       std::chrono::milliseconds limit) {
  if (!group_monitor_) return std::nullopt;
  {
    const std::lock_guard lock(mutex_);
    if (Clock::now() - last_wait_at_ < kFailureWaitCooldown) limit = {};
  }
  if (group_monitor_->wait_for_failure(limit)) return failure(context);
  const std::lock_guard lock(mutex_);
  last_wait_at_ = Clock::now();
  return std::nullopt;
}

std::optional<CommError> PeerMonitor::find_exited_rank(const Context& context) {
  const std::unique_lock lock(
      mutex_, std::try_to_lock);  // the thread that holds the lock is searching already
  if (!lock || !local_peers_) return std::nullopt;
  const auto ended = local_peers_->first_exited();
  // Only the second search reports it: what the rank did before it exited may suffice.
  if (std::exchange(exited_rank_, ended.rank) != ended.rank || ended.rank < 0) return std::nullopt;
  auto where = context;
  where.peer = ended.rank;
  return CommError(Errc::kPeerFailed,
                   monitor::failed_rank_text(
                       ended.rank, "its process (" + std::to_string(ended.pid) + ") has ended"),
                   where);
}

void PeerMonitor::check_mismatch_later(Clock::time_point began) {
  if (group_monitor_) group_monitor_->check_mismatch_later(began.time_since_epoch());
}

std::optional<CommError> PeerMonitor::find_mismatch(const Context& context) {
  if (!group_monitor_) return std::nullopt;
  const auto failure = group_monitor_->find_mismatch(kSkew, kReplyTimeout);
  return failure ? std::optional(to_comm_error(*failure, context)) : std::nullopt;
}

std::optional<PeerMonitor::ProgressSummary> PeerMonitor::query_progress() {
  if (group_monitor_) {
    const auto report = group_monitor_->query_progress();
    if (!report) return std::nullopt;
    return ProgressSummary{report->text.empty() ? "" : "; " + report->text, report->culprits};
  }
  const std::lock_guard lock(mutex_);
  const auto text = local_peers_ ? local_peers_->format_status() : "";
  return ProgressSummary{text.empty() ? "" : ". The ranks of this host recorded: " + text};
}

PeerMonitor::ProgressSummary PeerMonitor::wait_for_progress() {
  const auto until = Clock::now() + kProgressTimeout;
  while (true) {
    if (auto where = query_progress()) return *where;
    if (Clock::now() >= until) return {};
    std::this_thread::sleep_for(kProgressPollInterval);
  }
}

std::optional<PeerMonitor::ProgressSummary> PeerMonitor::consistency_barrier(
    uint64_t number, Clock::time_point until, const std::function<void()>& interrupt_check) {
  if (!group_monitor_) return std::nullopt;
  group_monitor_->start_consistency_check(number);
  while (!group_monitor_->wait_consistent(number, kPeerMonitorPollInterval)) {
    interrupt_check();
    if (Clock::now() < until) continue;
    if (auto where = query_progress()) return where;
  }
  return std::nullopt;
}

std::shared_ptr<monitor::GroupMonitor> open_monitor(const Rendezvous& rendezvous,
                                                    const std::string& name,
                                                    const std::string& interface,
                                                    std::shared_ptr<const CollectiveLog> record) {
  bool exchange_started = false;
  const auto exchange = [&](std::string own_blob) {
    exchange_started = true;
    auto params = exchange_params(rendezvous, name);
    params.blob = std::move(own_blob);
    params.interface = interface;
    StoreKeyValue store(rendezvous.store, rendezvous.deadline, {}, rendezvous.address);
    auto received = bootstrap::exchange_blobs(store, params);
    return monitor::MonitorNetwork::MonitorExchangeResult{std::move(received.blobs),
                                                          received.secret};
  };
  try {
    return monitor::MonitorNetwork::make(rendezvous.rank, rendezvous.size, interface, exchange)
        ->world_group(std::move(record));
  } catch (const CommError& e) {
    if (!exchange_started) decline_monitor(rendezvous, name, e);
    throw;
  }
}

void decline_monitor(const Rendezvous& rendezvous, const std::string& name,
                     const CommError& error) noexcept {
  try {
    StoreKeyValue store(rendezvous.store, rendezvous.deadline, {}, rendezvous.address);
    bootstrap::decline_exchange(store, exchange_params(rendezvous, name), error);
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kDebug,
              std::string("the peers cannot be notified of this rank's error: ") + e.what());
  }
}

}  // namespace torch::comms::common
