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

constexpr milliseconds kSilence{10'000};  // after which a connection to a vanished host fails
constexpr milliseconds kPatience{5'000};  // for the handshake of an accepted connection
constexpr milliseconds kLinger{1'000};    // at shutdown, for unsent messages
constexpr milliseconds kTelling{500};     // at close, for the acknowledgment of an announced abort
constexpr milliseconds kLastLooks{50};    // poll interval while unsent messages remain at shutdown
constexpr milliseconds kLongest{60'000};  // fits the int of poll()
constexpr size_t kMostEarly = 1024;
constexpr uint64_t kEverybody = 1;

std::string own_contact(uint16_t port, const std::string& interface) {
  std::string contact;
  for (const auto& address :
       base::choose_addresses(base::interface_addresses(), interface).addresses)
    contact += (contact.empty() ? "" : " ") + base::format_address(address, port);
  return contact;
}

}  // namespace

std::shared_ptr<MonitorNetwork> MonitorNetwork::make(int rank, int size,
                                                     const std::string& interface,
                                                     const AddressExchange& exchange,
                                                     MonitorProtocol::MonitorRetryPolicy pace) {
  std::shared_ptr<MonitorNetwork> made(new MonitorNetwork);
  made->rank_ = rank;
  made->retry_policy_ = pace;
  made->fork_generation_ = base::fork_generation();
  made->wakeup_event_ = base::FileDescriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!made->wakeup_event_) throw base::system_error("eventfd of the side channel");
  uint16_t port = 0;
  made->listener_.emplace(base::listen_on_all_interfaces(port));
  const uint64_t instance = base::random_number();
  const auto told = exchange(transport::ByteWriter()
                                 .add(instance)
                                 .text(std::to_string(::getpid()) + " on " + base::host_name())
                                 .text(own_contact(port, interface))
                                 .release());
  made->secret_ = told.secret;
  for (const auto& blob : told.blobs) {
    transport::ByteReader reader(blob, "invalid address of a side channel");
    auto& place = made->contacts_.emplace_back();
    place.instance = reader.number<uint64_t>();
    place.process_description = reader.text();
    place.contact = reader.text();
  }
  if (made->contacts_.size() != static_cast<size_t>(size))
    throw CommError(Errc::kMismatch, std::to_string(made->contacts_.size()) + " of " +
                                         std::to_string(size) +
                                         " ranks published an address of their side channel");
  try {
    made->thread_ = std::thread([family = made.get()] { family->run(); });
  } catch (const std::system_error& e) {
    throw CommError(Errc::kResourceExhausted,
                    std::string("cannot start the thread of the side channel: ") + e.what());
  }
  return made;
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
    std::shared_ptr<const CollectiveLogReader> diary) {
  std::vector<int> all(contacts_.size());
  std::iota(all.begin(), all.end(), 0);
  return std::make_shared<GroupMonitor>(shared_from_this(), kEverybody, std::move(all), rank_,
                                        std::move(diary));
}

int MonitorNetwork::connection_count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::ranges::count_if(connections_, [](const auto& link) {
    return link.second->state() == MonitorConnection::State::kConnected;
  }));
}

void MonitorNetwork::wake() const noexcept {
  const uint64_t one = 1;
  // A failed write means that the counter is full, so the monitor thread wakes up anyway.
  [[maybe_unused]] const auto written = ::write(wakeup_event_.get(), &one, sizeof one);
}

// ---- groups

void MonitorNetwork::add(GroupMonitor& circle) {
  const std::lock_guard lock(mutex_);
  groups_[circle.group_] = &circle;
  const Moment at = now();
  for (const auto& [rank, near] : circle.neighbor_ranks_)
    if (connection_to(rank, at).state() == MonitorConnection::State::kFailed) {
      MonitorProtocol::OutgoingMessages out;
      circle.protocol_.on_peer_failed(near, at, out);
      send_messages(circle, out);
    }
  for (auto next = early_messages_.begin(); next != early_messages_.end();) {
    const auto early = next++;
    if (early->message.group != circle.group_) continue;
    deliver(circle, early->from, early->message, at);
    early_messages_.erase(early);
  }
  wake();
}

void MonitorNetwork::remove(GroupMonitor& circle, bool well) noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kTelling, [&circle] { return circle.pending_abort_announcements_ == 0; });
  if (std::exchange(circle.is_closed_, true)) return;
  try {
    MonitorProtocol::OutgoingMessages out;
    if (std::exchange(circle.has_announced_close_, true)) {
      // The close has been announced already.
    } else if (well) {
      circle.protocol_.close(out);
    } else {
      MonitorMessage lost{.kind = MonitorMessage::Kind::kFailed, .group = circle.group_};
      for (const auto& [family_rank, near] : circle.neighbor_ranks_) {
        lost.failed_rank =
            static_cast<int>(std::ranges::find(circle.ranks_, rank_) - circle.ranks_.begin());
        out.emplace_back(near, lost);
      }
    }
    send_messages(circle, out);
    closed_groups_.add(circle.group_);
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kWarning,
              std::string("side channel: cannot notify peer ranks of a close: ") + error.what());
  }
  groups_.erase(circle.group_);
  changed_.notify_all();
  wake();
}

void MonitorNetwork::send_messages(GroupMonitor& circle,
                                   const MonitorProtocol::OutgoingMessages& notes) {
  for (const auto& [to, note] : notes) {
    const int rank = circle.ranks_[static_cast<size_t>(to)];
    const bool fresh = !connections_.contains(rank);
    auto& link = connection_to(rank, now());
    if (fresh) link.connect_now(now());
    link.send(note.serialize());
  }
  if (circle.protocol_.failed_rank() >= 0 || circle.protocol_.mismatch() ||
      circle.protocol_.peer_abort())
    circle.has_failure_.store(true, std::memory_order_release);
  if (!circle.protocol_.peer_closes().empty())
    circle.has_peer_closes_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void MonitorNetwork::deliver(GroupMonitor& circle, int from, const MonitorMessage& note,
                             Moment at) {
  const auto size = static_cast<int>(circle.ranks_.size());
  const auto near = circle.neighbor_ranks_.find(from);
  int rank = near == circle.neighbor_ranks_.end() ? -1 : near->second;
  // A closing rank may notify all ranks of the group, not only its neighbors.
  if (rank < 0 && note.kind == MonitorMessage::Kind::kClosed) {
    const auto place = std::ranges::find(circle.ranks_, from);
    if (place != circle.ranks_.end()) rank = static_cast<int>(place - circle.ranks_.begin());
  }
  if (rank < 0) return;
  if (note.failed_rank >= size || note.query.origin >= size) return;
  if (std::ranges::any_of(note.culprits, [size](int rank) { return rank >= size; })) return;
  MonitorProtocol::OutgoingMessages out;
  circle.protocol_.on_message(rank, note, at, out);
  send_messages(circle, out);
}

// ---- connections

MonitorConnection& MonitorNetwork::connection_to(int rank, Moment at) {
  auto& link = connections_[rank];
  if (link) return *link;
  const auto& place = contacts_[static_cast<size_t>(rank)];
  TcpHello hello;
  hello.from = rank_;
  hello.to = rank;
  hello.instance = place.instance;
  hello.job = secret_;
  link = std::make_unique<MonitorConnection>(place.contact, hello, rank_ < rank, at);
  return *link;
}

void MonitorNetwork::accept_all(Moment at) {
  while (auto socket = listener_->accept()) {
    base::set_keepalive_and_user_timeout(socket.get(), kSilence);
    static_cast<void>(
        handshakes_.add({transport::tcp::PendingTcpConnection(std::move(socket)), at}));
  }
}

bool MonitorNetwork::accept_peer(PendingMonitorConnection& guest, Moment at) {
  using State = transport::tcp::PendingTcpConnection::State;
  const transport::tcp::TcpEndpointId door{rank_, contacts_[static_cast<size_t>(rank_)].instance,
                                           secret_};
  const auto state = guest.connection.read();
  if (state == State::kIncomplete) return at - guest.since >= kPatience;
  const auto& hello = guest.connection.hello();
  if (state == State::kComplete && why_not(hello, door) == nullptr)
    connection_to(hello.from, at).adopt(guest.connection.release_socket());
  return true;
}

void MonitorNetwork::read(int from, MonitorConnection& link, Moment at) {
  std::string text;
  while (link.receive(text)) {
    try {
      auto note = MonitorMessage::parse(text, static_cast<int>(contacts_.size()));
      const auto found = groups_.find(note.group);
      if (found != groups_.end()) {
        deliver(*found->second, from, note, at);
      } else if (!closed_groups_.contains(note.group)) {
        early_messages_.push_back({from, std::move(note)});
        if (early_messages_.size() > kMostEarly) early_messages_.pop_front();
      }
    } catch (const CommError& error) {
      base::log(base::LogLevel::kWarning, "side channel: bad message from rank " +
                                              std::to_string(from) + ": " + error.what());
    }
  }
}

bool MonitorNetwork::has_unsent() const {
  return std::ranges::any_of(connections_,
                             [](const auto& link) { return link.second->has_unsent(); });
}

void MonitorNetwork::poll_once(std::unique_lock<std::mutex>& lock) {
  std::vector<pollfd> polled{{wakeup_event_.get(), POLLIN, 0}, {listener_->get(), POLLIN, 0}};
  std::vector<int> ranks;
  Moment until = now() + kLongest;
  for (const auto& [rank, link] : connections_) {
    ranks.push_back(rank);
    polled.push_back({link->socket(), link->events(), 0});
    until = std::min(until, link->next_time());
  }
  for (const auto& [group, circle] : groups_)
    until = std::min(until, circle->protocol_.next_time());
  for (const auto& guest : handshakes_) {
    polled.push_back({guest.socket(), POLLIN, 0});
    until = std::min(until, guest.since + kPatience);
  }
  if (is_stopping_) until = std::min(until, now() + kLastLooks);
  lock.unlock();
  const auto left = std::chrono::ceil<milliseconds>(std::max(until - now(), Moment::zero()));
  ::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
  lock.lock();
  uint64_t rings = 0;
  [[maybe_unused]] const auto taken = ::read(wakeup_event_.get(), &rings, sizeof rings);

  const Moment at = now();
  if ((polled[1].revents & POLLIN) != 0) accept_all(at);
  handshakes_.poll_all();
  for (size_t i = 0; i < ranks.size(); ++i) {
    auto& link = *connections_.at(ranks[i]);
    // Another thread may have handled the socket meanwhile.
    service(ranks[i], link, polled[i + 2].fd == link.socket() ? polled[i + 2].revents : short{0},
            at);
  }
  for (const auto& [group, circle] : groups_) {
    MonitorProtocol::OutgoingMessages out;
    circle->protocol_.on_time(at, out);
    if (!out.empty()) send_messages(*circle, out);
  }
}

void MonitorNetwork::service(int rank, MonitorConnection& link, short events, Moment at) {
  const bool was_lost = link.state() == MonitorConnection::State::kFailed;
  link.on_ready(events, at);
  link.on_time(at);
  read(rank, link, at);
  if (was_lost || link.state() != MonitorConnection::State::kFailed) return;
  for (const auto& [group, circle] : groups_) {
    const auto near = circle->neighbor_ranks_.find(rank);
    if (near == circle->neighbor_ranks_.end()) continue;
    MonitorProtocol::OutgoingMessages out;
    circle->protocol_.on_peer_failed(near->second, at, out);
    send_messages(*circle, out);
  }
}

// Handles the established connections; the monitor thread handles the others.
void MonitorNetwork::drain_incoming() {
  const std::lock_guard lock(mutex_);
  const Moment at = now();
  // A copy of the keys: handling a message may add a connection.
  std::vector<int> ranks;
  for (const auto& [rank, link] : connections_)
    if (link->state() == MonitorConnection::State::kConnected) ranks.push_back(rank);
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
