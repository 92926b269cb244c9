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
      protocol_({group, rank, static_cast<int>(ranks_.size())}, *log_, *this,
                network_->retry_policy_) {
  for (const int neighbor : protocol_.neighbors())
    neighbor_ranks_[ranks_[static_cast<size_t>(neighbor)]] = neighbor;
  network_->add(*this);
}

GroupMonitor::~GroupMonitor() { leave_network(/*graceful=*/false); }

void GroupMonitor::send(int rank, const MonitorMessage& message) {
  const int network_rank = ranks_[static_cast<size_t>(rank)];
  const bool is_new = !network_->connections_.contains(network_rank);
  auto& connection = network_->connection_to(network_rank, now());
  if (is_new) connection.connect_now(now());
  connection.send(message.serialize());
}

Moment GroupMonitor::now() const noexcept { return MonitorNetwork::now(); }

template <class Body>
bool GroupMonitor::with_protocol(const Body& body) {
  const std::lock_guard lock(network_->mutex_);
  if (is_closed_) return false;
  body(protocol_);
  publish();
  network_->wake();
  return true;
}

void GroupMonitor::publish() {
  if (!protocol_.failed_ranks().empty() || protocol_.mismatch() || protocol_.peer_abort())
    has_failure_.store(true, std::memory_order_release);
  if (!protocol_.peer_closes().empty()) has_peer_closes_.store(true, std::memory_order_release);
  network_->changed_.notify_all();
}

void GroupMonitor::close() noexcept { leave_network(/*graceful=*/true); }

void GroupMonitor::announce_close(const std::vector<PostedCounts>& posted,
                                  bool to_all_ranks) noexcept {
  if (base::fork_generation() != network_->fork_generation_) return;
  try {
    with_protocol([&](MonitorProtocol& protocol) {
      if (!std::exchange(has_announced_close_, true)) protocol.close(posted, to_all_ranks);
    });
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kWarning,
              std::string("side channel: cannot notify peer ranks of a close: ") + error.what());
  }
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
  return protocol_.failure();
}

void GroupMonitor::check_mismatch_later(Moment began) {
  with_protocol([&](MonitorProtocol& protocol) { protocol.check_mismatch_later(began); });
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
      protocol_.check_mismatch_now();
      publish();
      network_->wake();
      over = network_->changed_.wait_for(lock, std::min<Moment>(kRetryInterval, left), is_over);
    }
  }
  const auto found = failure();
  return found && found->code == Errc::kMismatch ? found : std::nullopt;
}

std::optional<MonitorProtocol::HangReport> GroupMonitor::query_progress() {
  std::optional<MonitorProtocol::HangReport> report;
  const bool is_open = with_protocol([&](MonitorProtocol& protocol) {
    protocol.query_progress(log_->first_incomplete());
    report = protocol.report();
  });
  return is_open ? report : MonitorProtocol::HangReport{};
}

bool GroupMonitor::announce_abort(const AbortReason& why) {
  return with_protocol([&](MonitorProtocol& protocol) {
    protocol.announce_abort(why);
    ++pending_abort_announcements_;
  });
}

void GroupMonitor::wait_abort_acknowledged(std::chrono::milliseconds limit) {
  std::unique_lock lock(network_->mutex_);
  network_->changed_.wait_for(lock, limit,
                              [this] { return is_closed_ || protocol_.is_abort_acknowledged(); });
  --pending_abort_announcements_;
  network_->changed_.notify_all();
}

void GroupMonitor::start_consistency_check(uint64_t number) {
  with_protocol([&](MonitorProtocol& protocol) { protocol.start_consistency_check(number); });
}

bool GroupMonitor::wait_consistent(uint64_t number, std::chrono::milliseconds tick) {
  std::unique_lock lock(network_->mutex_);
  network_->changed_.wait_for(lock, tick, [&] {
    return is_closed_ || has_failure() || protocol_.last_consistent() >= number;
  });
  return protocol_.last_consistent() >= number;
}

}  // namespace torch::comms::monitor
