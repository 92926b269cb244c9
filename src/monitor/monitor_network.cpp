#include "monitor/monitor_network.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/net/interfaces.hpp"
#include "base/net/socket.hpp"
#include "base/os/fork.hpp"
#include "base/os/host.hpp"
#include "base/os/log.hpp"
#include "base/os/system_error.hpp"
#include "monitor/overlay_topology.hpp"
#include "transport/byte_stream.hpp"

namespace torch::comms::monitor {
namespace {

using std::chrono::milliseconds;
using transport::tcp::TcpHello;

constexpr milliseconds kKeepalive{10'000};  // after which a connection to a vanished host fails
constexpr milliseconds kHandshakeTimeout{5'000};  // for the handshake of an accepted connection
constexpr milliseconds kLinger{1'000};            // at shutdown, for unsent messages
// At close, for the acknowledgment of an announced abort.
constexpr milliseconds kAbortAckTimeout{500};
// Poll interval while unsent messages remain at shutdown.
constexpr milliseconds kShutdownPoll{50};
constexpr milliseconds kMaxPollTime{60'000};  // fits the int of poll()
constexpr size_t kMaxEarlyMessages = 1024;
constexpr uint64_t kWorldGroup = 1;

std::string own_contact(uint16_t port, const std::string& interface) {
  std::string contact;
  for (const auto& address :
       base::choose_addresses(base::interface_addresses(), interface).addresses)
    contact += (contact.empty() ? "" : " ") + base::format_address(address, port);
  return contact;
}

}  // namespace

std::shared_ptr<MonitorNetwork> MonitorNetwork::make(
    int rank, int size, const std::string& interface, const AddressExchange& exchange,
    MonitorProtocol::MonitorRetryPolicy retry_policy) {
  std::shared_ptr<MonitorNetwork> network(new MonitorNetwork);
  network->rank_ = rank;
  network->retry_policy_ = retry_policy;
  network->fork_generation_ = base::fork_generation();
  network->wakeup_event_ = base::FileDescriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!network->wakeup_event_) throw base::system_error("eventfd of the side channel");
  uint16_t port = 0;
  network->listener_.emplace(base::listen_on_all_interfaces(port));
  const uint64_t instance = base::random_number();
  const auto exchanged = exchange(transport::ByteWriter()
                                      .add(instance)
                                      .text(std::to_string(::getpid()) + " on " + base::host_name())
                                      .text(own_contact(port, interface))
                                      .release());
  network->secret_ = exchanged.secret;
  for (const auto& blob : exchanged.blobs) {
    transport::ByteReader reader(blob, "invalid address of a side channel");
    auto& entry = network->contacts_.emplace_back();
    entry.instance = reader.number<uint64_t>();
    entry.process_description = reader.text();
    entry.contact = reader.text();
  }
  if (network->contacts_.size() != static_cast<size_t>(size))
    throw CommError(Errc::kMismatch, std::to_string(network->contacts_.size()) + " of " +
                                         std::to_string(size) +
                                         " ranks published an address of their side channel");
  try {
    network->thread_ = std::thread([raw_network = network.get()] { raw_network->run(); });
  } catch (const std::system_error& e) {
    throw CommError(Errc::kResourceExhausted,
                    std::string("cannot start the thread of the side channel: ") + e.what());
  }
  return network;
}

MonitorNetwork::~MonitorNetwork() {
  if (base::fork_generation() != fork_generation_) {
    // The thread and the descriptors belong to the parent process; this process must not end them.
    static_cast<void>(new std::thread(std::move(thread_)));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<GroupMonitor> MonitorNetwork::world_group(
    std::shared_ptr<const CollectiveLogReader> log) {
  std::vector<int> all(contacts_.size());
  std::iota(all.begin(), all.end(), 0);
  return std::make_shared<GroupMonitor>(shared_from_this(), kWorldGroup, std::move(all), rank_,
                                        std::move(log));
}

int MonitorNetwork::connection_count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::ranges::count_if(connections_, [](const auto& connection) {
    return connection.second->state() == MonitorConnection::State::kConnected;
  }));
}

void MonitorNetwork::wake() const noexcept {
  const uint64_t one = 1;
  // A failed write means that the counter is full, so the monitor thread wakes up anyway.
  [[maybe_unused]] const auto written = ::write(wakeup_event_.get(), &one, sizeof one);
}

// ---- groups

void MonitorNetwork::add(GroupMonitor& group_monitor) {
  const std::lock_guard lock(mutex_);
  groups_[group_monitor.group_] = &group_monitor;
  const Moment at = now();
  for (const auto& [rank, neighbor] : group_monitor.neighbor_ranks_)
    if (connection_to(rank, at).state() == MonitorConnection::State::kFailed) {
      group_monitor.protocol_.on_peer_failed(neighbor, why_failed(rank));
      group_monitor.publish();
    }
  for (auto next = early_messages_.begin(); next != early_messages_.end();) {
    const auto early = next++;
    if (early->message.group != group_monitor.group_) continue;
    deliver(group_monitor, early->from, early->message);
    early_messages_.erase(early);
  }
  wake();
}

void MonitorNetwork::remove(GroupMonitor& group_monitor, bool graceful) noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kAbortAckTimeout,
                    [&group_monitor] { return group_monitor.pending_abort_announcements_ == 0; });
  if (std::exchange(group_monitor.is_closed_, true)) return;
  try {
    if (std::exchange(group_monitor.has_announced_close_, true)) {
      // The close has been announced already.
    } else if (graceful) {
      group_monitor.protocol_.close();
    } else {
      group_monitor.protocol_.leave_failed(why_failed(rank_));
    }
    closed_groups_.add(group_monitor.group_);
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kWarning,
              std::string("side channel: cannot notify peer ranks of a close: ") + error.what());
  }
  groups_.erase(group_monitor.group_);
  changed_.notify_all();
  wake();
}

std::string MonitorNetwork::why_failed(int rank) const {
  return "its process (" + contacts_[static_cast<size_t>(rank)].process_description +
         ") has ended, has closed the communicator, or cannot be reached";
}

void MonitorNetwork::deliver(GroupMonitor& group_monitor, int from, const MonitorMessage& message) {
  const auto size = static_cast<int>(group_monitor.ranks_.size());
  const auto neighbor = group_monitor.neighbor_ranks_.find(from);
  int rank = neighbor == group_monitor.neighbor_ranks_.end() ? -1 : neighbor->second;
  // A closing rank may notify all ranks of the group, not only its neighbors.
  if (rank < 0 && message.kind == MonitorMessage::Kind::kClosed) {
    const auto entry = std::ranges::find(group_monitor.ranks_, from);
    if (entry != group_monitor.ranks_.end())
      rank = static_cast<int>(entry - group_monitor.ranks_.begin());
  }
  if (rank < 0) return;
  if (message.failed_rank >= size || message.query.origin >= size) return;
  if (std::ranges::any_of(message.culprits, [size](int culprit) { return culprit >= size; }))
    return;
  group_monitor.protocol_.on_message(rank, message);
  group_monitor.publish();
}

// ---- connections

MonitorConnection& MonitorNetwork::connection_to(int rank, Moment at) {
  auto& connection = connections_[rank];
  if (connection) return *connection;
  const auto& entry = contacts_[static_cast<size_t>(rank)];
  TcpHello hello;
  hello.from = rank_;
  hello.to = rank;
  hello.instance = entry.instance;
  hello.job = secret_;
  connection = std::make_unique<MonitorConnection>(entry.contact, hello, rank_ < rank, at);
  return *connection;
}

void MonitorNetwork::accept_all(Moment at) {
  while (auto socket = listener_->accept()) {
    base::set_keepalive_and_user_timeout(socket.get(), kKeepalive);
    static_cast<void>(
        handshakes_.add({transport::tcp::PendingTcpConnection(std::move(socket)), at}));
  }
}

bool MonitorNetwork::accept_peer(PendingMonitorConnection& pending, Moment at) {
  using State = transport::tcp::PendingTcpConnection::State;
  const transport::tcp::TcpEndpointId endpoint_id{
      rank_, contacts_[static_cast<size_t>(rank_)].instance, secret_};
  const auto state = pending.connection.read();
  if (state == State::kIncomplete) return at - pending.since >= kHandshakeTimeout;
  const auto& hello = pending.connection.hello();
  if (state == State::kComplete && why_not(hello, endpoint_id) == nullptr)
    connection_to(hello.from, at).adopt(pending.connection.release_socket());
  return true;
}

void MonitorNetwork::read(int from, MonitorConnection& connection) {
  std::string text;
  while (connection.receive(text)) {
    try {
      auto message = MonitorMessage::parse(text, static_cast<int>(contacts_.size()));
      const auto found = groups_.find(message.group);
      if (found != groups_.end()) {
        deliver(*found->second, from, message);
      } else if (!closed_groups_.contains(message.group)) {
        early_messages_.push_back({from, std::move(message)});
        if (early_messages_.size() > kMaxEarlyMessages) early_messages_.pop_front();
      }
    } catch (const CommError& error) {
      base::log(base::LogLevel::kWarning, "side channel: bad message from rank " +
                                              std::to_string(from) + ": " + error.what());
    }
  }
}

bool MonitorNetwork::has_unsent() const {
  return std::ranges::any_of(
      connections_, [](const auto& connection) { return connection.second->has_unsent(); });
}

void MonitorNetwork::poll_once(std::unique_lock<std::mutex>& lock) {
  std::vector<pollfd> polled{{wakeup_event_.get(), POLLIN, 0}, {listener_->get(), POLLIN, 0}};
  std::vector<int> ranks;
  Moment until = now() + kMaxPollTime;
  for (const auto& [rank, connection] : connections_) {
    ranks.push_back(rank);
    polled.push_back({connection->socket(), connection->events(), 0});
    until = std::min(until, connection->next_time());
  }
  for (const auto& [group, group_monitor] : groups_)
    until = std::min(until, group_monitor->protocol_.next_time());
  for (const auto& pending : handshakes_) {
    polled.push_back({pending.socket(), POLLIN, 0});
    until = std::min(until, pending.since + kHandshakeTimeout);
  }
  if (is_stopping_) until = std::min(until, now() + kShutdownPoll);
  lock.unlock();
  const auto left = std::chrono::ceil<milliseconds>(std::max(until - now(), Moment::zero()));
  ::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
  lock.lock();
  uint64_t wakeups = 0;
  [[maybe_unused]] const auto bytes_read = ::read(wakeup_event_.get(), &wakeups, sizeof wakeups);

  const Moment at = now();
  if ((polled[1].revents & POLLIN) != 0) accept_all(at);
  handshakes_.poll_all();
  for (size_t i = 0; i < ranks.size(); ++i) {
    auto& connection = *connections_.at(ranks[i]);
    // Another thread may have handled the socket meanwhile.
    service(ranks[i], connection,
            polled[i + 2].fd == connection.socket() ? polled[i + 2].revents : short{0}, at);
  }
  for (const auto& [group, group_monitor] : groups_) {
    if (group_monitor->protocol_.next_time() > at) continue;
    group_monitor->protocol_.on_time();
    group_monitor->publish();
  }
}

void MonitorNetwork::service(int rank, MonitorConnection& connection, short events, Moment at) {
  const bool was_lost = connection.state() == MonitorConnection::State::kFailed;
  connection.on_ready(events, at);
  connection.on_time(at);
  read(rank, connection);
  if (was_lost || connection.state() != MonitorConnection::State::kFailed) return;
  for (const auto& [group, group_monitor] : groups_) {
    const auto neighbor = group_monitor->neighbor_ranks_.find(rank);
    if (neighbor == group_monitor->neighbor_ranks_.end()) continue;
    group_monitor->protocol_.on_peer_failed(neighbor->second, why_failed(rank));
    group_monitor->publish();
  }
}

// Handles the established connections; the monitor thread handles the others.
void MonitorNetwork::drain_incoming() {
  const std::lock_guard lock(mutex_);
  const Moment at = now();
  // A copy of the keys: handling a message may add a connection.
  std::vector<int> ranks;
  for (const auto& [rank, connection] : connections_)
    if (connection->state() == MonitorConnection::State::kConnected) ranks.push_back(rank);
  for (const int rank : ranks) service(rank, *connections_.at(rank), POLLIN, at);
  wake();
}

void MonitorNetwork::run() {
  std::unique_lock lock(mutex_);
  Moment end = kNever;
  while (true) {
    if (is_stopping_ && end == kNever) end = now() + kLinger;
    if (is_stopping_ && (!has_unsent() || now() >= end)) return;
    try {
      poll_once(lock);
    } catch (const std::exception& error) {
      base::log(base::LogLevel::kError, std::string("side channel: ") + error.what());
      if (!lock.owns_lock()) lock.lock();
    }
  }
}

}  // namespace torch::comms::monitor
