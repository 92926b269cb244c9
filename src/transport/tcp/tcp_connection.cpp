#include "transport/tcp/tcp_connection.hpp"

#include <sys/epoll.h>

#include <algorithm>

#include "base/os/fork.hpp"

namespace torch::comms::transport::tcp {

TcpConnection::TcpConnection(std::vector<base::FileDescriptor> sockets, uint32_t chunk_bytes,
                             Poller& poller, KeepaliveWatch& keepalive)
    : chunk_bytes_(chunk_bytes),
      poller_(poller),
      keepalive_(keepalive),
      fork_generation_(base::fork_generation()) {
  const auto count = static_cast<unsigned>(sockets.size());
  channels_.reserve(count);
  for (auto& socket : sockets) {
    keepalive_.configure(socket.get());
    channels_.push_back({StreamSocket(std::move(socket), chunk_bytes, count)});
    poller_.replace_client(channels_.back().stream.socket(), EPOLLIN, *this);
  }
  keepalive_.add(*this);
}

TcpConnection::~TcpConnection() {
  keepalive_.remove(*this);
  if (fork_generation_ != base::fork_generation()) return;  // the connection is the parent's
  for (auto& socket : channels_) {
    poller_.remove(socket.stream.socket());
    socket.stream.close_gracefully();
  }
}

bool TcpConnection::has_ready_socket() const noexcept {
  return std::ranges::any_of(channels_, &ConnectionSocket::is_readable);
}

bool TcpConnection::is_at_end() const noexcept {
  const auto broken = [](const auto& s) { return !s.stream.error_text().empty(); };
  return std::ranges::all_of(channels_, broken) ||
         std::ranges::any_of(channels_,
                             [&](const auto& s) { return broken(s) && !s.stream.has_ended(); });
}

void TcpConnection::watch(ConnectionSocket& socket) noexcept {
  if (socket.stream.is_blocked() == socket.is_watched_for_room) return;
  socket.is_watched_for_room = socket.stream.is_blocked();
  poller_.change(socket.stream.socket(), socket.is_watched_for_room ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

bool TcpConnection::try_send(const Frame& frame, std::span<const ConstBytes> payload,
                             uint32_t* frames_in_use) noexcept {
  auto& socket = channels_[frame.channel];
  const bool sent = socket.stream.try_send(frame, payload, frames_in_use);
  watch(socket);
  if (sent) keepalive_.on_sent();
  return sent;
}

bool TcpConnection::check_keepalive(Keepalive::Time now, std::chrono::milliseconds limit) noexcept {
  bool has_unacknowledged = false;
  for (auto& socket : channels_) {
    if (!socket.stream.error_text().empty()) continue;
    const auto status = base::tcp_ack_status(socket.stream.socket());
    if (!status) continue;
    if (socket.keepalive.unanswered_for(*status, now) >= limit) socket.stream.fail_keepalive(limit);
    has_unacknowledged |= !socket.stream.is_delivered();
  }
  return has_unacknowledged;
}

void TcpConnection::on_ready(int descriptor, uint32_t events) {
  for (auto& socket : channels_) {
    if (socket.stream.socket() != descriptor) continue;
    if ((events & EPOLLOUT) != 0) socket.stream.flush();
    watch(socket);
    socket.is_readable |= (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
  }
}

PeerConnection::ReceiveStatus TcpConnection::receive(FrameSink& sink) noexcept {
  bool moved = false;
  for (auto& socket : channels_) {
    if (socket.is_readable) moved |= socket.stream.receive(sink);
    socket.is_readable = false;  // the poller sets it again if data remain
    if (socket.stream.has_ended()) poller_.remove(socket.stream.socket());
  }
  const bool ended = is_at_end();
  // The other sockets may hold data that came before the end.
  if (ended && !moved)
    for (auto& socket : channels_)
      if (socket.stream.error_text().empty()) moved |= socket.stream.receive(sink);
  if (moved) return ReceiveStatus::kSome;
  if (!ended) return ReceiveStatus::kNothing;
  // Reports an error rather than a mere end.
  for (const bool has_ended : {false, true})
    for (const auto& socket : channels_) {
      if (!error_text_.empty() || socket.stream.has_ended() != has_ended) continue;
      error_text_ = socket.stream.error_text();
      error_code_ = socket.stream.error_code();
    }
  return ReceiveStatus::kBroken;
}

bool TcpConnection::has_unflushed() const noexcept {
  return std::any_of(channels_.begin(), channels_.end(),
                     [](const auto& socket) { return socket.stream.is_blocked(); });
}

bool TcpConnection::is_delivered() const noexcept {
  return std::all_of(channels_.begin(), channels_.end(),
                     [](const auto& socket) { return socket.stream.is_delivered(); });
}

void TcpConnection::cancel_writes(ConstBytes range) noexcept {
  for (auto& socket : channels_) socket.stream.cancel_writes(range);
}

}  // namespace torch::comms::transport::tcp
