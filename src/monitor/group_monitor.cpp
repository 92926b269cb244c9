#include <algorithm>
#include <utility>

#include "base/os/fork.hpp"
#include "base/os/log.hpp"
#include "monitor/monitor_network.hpp"
#include "monitor/overlay_topology.hpp"

namespace torch::comms::monitor {

GroupMonitor::GroupMonitor(std::shared_ptr<MonitorNetwork> network, uint64_t group,
                           std::vector<int> ranks, int rank,
                           std::shared_ptr<const CollectiveLogReader> log)
    : network_(std::move(network)),
      group_(group),
      ranks_(std::move(ranks)),
      log_(std::move(log)),
      protocol_(group, rank, static_cast<int>(ranks_.size()), *log_, network_->retry_policy_) {
  for (const int neighbor : protocol_.neighbors())
    neighbor_ranks_[ranks_[static_cast<size_t>(neighbor)]] = neighbor;
  network_->add(*this);
}

GroupMonitor::~GroupMonitor() { leave_network(/*graceful=*/false); }

void GroupMonitor::close() noexcept { leave_network(/*graceful=*/true); }

void GroupMonitor::announce_close(const std::vector<PostedCounts>& posted,
                                  bool to_all_ranks) noexcept {
  if (base::fork_generation() != network_->fork_generation_) return;
  const std::lock_guard lock(network_->mutex_);
  if (is_closed_ || std::exchange(has_announced_close_, true)) return;
  try {
    MonitorProtocol::OutgoingMessages out;
    protocol_.close(out, posted, to_all_ranks);
    network_->send_messages(*this, out);
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kWarning,
              std::string("side channel: cannot notify peer ranks of a close: ") + error.what());
  }
  network_->wake();
}

std::map<int, MonitorProtocol::PeerClose> GroupMonitor::peer_closes() const {
  const std::lock_guard lock(network_->mutex_);
  return protocol_.peer_closes();
}

void GroupMonitor::leave_network(bool graceful) noexcept {
  if (base::fork_generation() != network_->fork_generation_)
    return;  // inherited from the parent process: nothing to do
  network_->remove(*this, graceful);
}

std::shared_ptr<GroupMonitor> GroupMonitor::split(
    const std::vector<int>& ranks, uint64_t count,
    std::shared_ptr<const CollectiveLogReader> log) const {
  std::vector<int> members;
  int own = -1;
  for (const int rank : ranks) {
    members.push_back(ranks_[static_cast<size_t>(rank)]);
    if (members.back() == network_->rank_) own = static_cast<int>(members.size()) - 1;
  }
  const uint64_t seed = hash_bytes(&count, sizeof count, group_);
  const uint64_t group = hash_bytes(members.data(), members.size() * sizeof(int), seed);
  return std::make_shared<GroupMonitor>(network_, group, std::move(members), own, std::move(log));
}

bool GroupMonitor::wait_for_failure(std::chrono::milliseconds limit) const {
  std::unique_lock lock(network_->mutex_);
  network_->changed_.wait_for(lock, limit, [this] { return is_closed_ || has_failure(); });
  return has_failure();
}

void GroupMonitor::drain_incoming() {
  if (base::fork_generation() == network_->fork_generation_) network_->drain_incoming();
}

std::optional<GroupMonitor::GroupFailure> GroupMonitor::failure() const {
  if (!has_failure()) return std::nullopt;
  const std::lock_guard lock(network_->mutex_);
  const auto& end = protocol_.peer_abort();
  const Moment ends = end ? end->since : kNever;
  if (const auto& mismatch = protocol_.mismatch())
    return GroupFailure{Errc::kMismatch, mismatch->reason, mismatch->culprits, ends};
  const int failed_rank = protocol_.failed_rank();
  // A peer's abort reason adds nothing if it only names the rank that has already been seen to
  // fail.
  if (end && std::ranges::count(end->reason.culprits, failed_rank) == 0) {
    auto abort_reason = as_seen_by_peers(end->reason, end->rank);
    return GroupFailure{abort_reason.code, std::move(abort_reason.reason),
                        std::move(abort_reason.culprits), ends};
  }
  if (failed_rank < 0) return std::nullopt;
  const auto& contact =
      network_->contacts_[static_cast<size_t>(ranks_[static_cast<size_t>(failed_rank)])];
  return GroupFailure{Errc::kPeerFailed,
                      "rank " + std::to_string(failed_rank) + " has failed: its process (" +
                          contact.process_description +
                          ") has ended, has closed the communicator, or cannot be reached",
                      {failed_rank},
                      ends};
}

void GroupMonitor::check_mismatch_later(Moment began) {
  MonitorProtocol::OutgoingMessages out;
  const std::lock_guard lock(network_->mutex_);
  if (is_closed_) return;
  protocol_.check_mismatch_later(began, MonitorNetwork::now(), out);
  network_->send_messages(*this, out);
  network_->wake();
}

std::optional<GroupMonitor::GroupFailure> GroupMonitor::find_mismatch(
    std::chrono::milliseconds initial_wait, std::chrono::milliseconds limit) {
  // A query supersedes the queries of other ranks, which may be further ahead; so every rank
  // repeats its query.
  constexpr std::chrono::milliseconds kRetryInterval{100};
  {
    std::unique_lock lock(network_->mutex_);
    const auto is_over = [&] { return is_closed_ || has_failure(); };
    const auto until = MonitorNetwork::now() + initial_wait + limit;
    bool over = network_->changed_.wait_for(lock, initial_wait, is_over);
    for (auto left = until - MonitorNetwork::now(); !over && left > Moment(0);
         left = until - MonitorNetwork::now()) {
      MonitorProtocol::OutgoingMessages out;
      protocol_.check_mismatch_now(MonitorNetwork::now(), out);
      network_->send_messages(*this, out);
      network_->wake();
      over = network_->changed_.wait_for(lock, std::min<Moment>(kRetryInterval, left), is_over);
    }
  }
  const auto found = failure();
  return found && found->code == Errc::kMismatch ? found : std::nullopt;
}

std::optional<MonitorProtocol::HangReport> GroupMonitor::query_progress() {
  MonitorProtocol::OutgoingMessages out;
  const std::lock_guard lock(network_->mutex_);
  if (is_closed_) return MonitorProtocol::HangReport{};
  protocol_.query_progress(MonitorNetwork::now(), out);
  network_->send_messages(*this, out);
  network_->wake();
  return protocol_.report();
}

bool GroupMonitor::announce_abort(const AbortReason& why) {
  MonitorProtocol::OutgoingMessages out;
  const std::lock_guard lock(network_->mutex_);
  if (is_closed_) return false;
  protocol_.announce_abort(why, MonitorNetwork::now(), out);
  network_->send_messages(*this, out);
  network_->wake();
  ++pending_abort_announcements_;
  return true;
}

void GroupMonitor::wait_abort_acknowledged(std::chrono::milliseconds limit) {
  std::unique_lock lock(network_->mutex_);
  network_->changed_.wait_for(lock, limit,
                              [this] { return is_closed_ || protocol_.is_abort_acknowledged(); });
  --pending_abort_announcements_;
  network_->changed_.notify_all();
}

void GroupMonitor::start_consistency_check(uint64_t number) {
  MonitorProtocol::OutgoingMessages out;
  const std::lock_guard lock(network_->mutex_);
  if (is_closed_) return;
  protocol_.start_consistency_check(number, MonitorNetwork::now(), out);
  network_->send_messages(*this, out);
  network_->wake();
}

bool GroupMonitor::wait_consistent(uint64_t number, std::chrono::milliseconds tick) {
  std::unique_lock lock(network_->mutex_);
  network_->changed_.wait_for(lock, tick, [&] {
    return is_closed_ || has_failure() || protocol_.last_consistent() >= number;
  });
  return protocol_.last_consistent() >= number;
}

}  // namespace torch::comms::monitor
