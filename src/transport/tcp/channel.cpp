#include "transport/tcp/channel.hpp"

#include <sys/epoll.h>

#include <algorithm>

#include "base/fork.hpp"

namespace torch::comms::transport::tcp {

TcpChannel::TcpChannel(std::vector<base::FileDescriptor> sockets, uint32_t chunk_bytes,
                       Poller& poller, SilenceWatch& silence)
    : chunk_bytes_(chunk_bytes),
      poller_(poller),
      silence_(silence),
      fork_generation_(base::fork_generation()) {
  const auto count = static_cast<unsigned>(sockets.size());
  lanes_.reserve(count);
  for (auto& socket : sockets) {
    silence_.tune(socket.get());
    lanes_.push_back({Lane(std::move(socket), chunk_bytes, count)});
    poller_.hand_over(lanes_.back().lane.socket(), EPOLLIN, *this);
  }
  silence_.add(*this);
}

TcpChannel::~TcpChannel() {
  silence_.remove(*this);
  if (fork_generation_ != base::fork_generation()) return;  // the connection is the parent's
  for (auto& socket : lanes_) {
    poller_.remove(socket.lane.socket());
    socket.lane.say_goodbye();
  }
}

bool TcpChannel::anything_ready() const noexcept {
  return std::ranges::any_of(lanes_, &Socket::readable);
}

bool TcpChannel::is_over() const noexcept {
  const auto broken = [](const auto& s) { return !s.lane.broken().empty(); };
  return std::ranges::all_of(lanes_, broken) || std::ranges::any_of(lanes_, [&](const auto& s) {
           return broken(s) && !s.lane.has_ended();
         });
}

void TcpChannel::watch(Socket& socket) noexcept {
  if (socket.lane.blocked() == socket.watched_for_room) return;
  socket.watched_for_room = socket.lane.blocked();
  poller_.change(socket.lane.socket(), socket.watched_for_room ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

bool TcpChannel::try_send(const Frame& frame, std::span<const ConstBytes> payload,
                          uint32_t* borrowed) noexcept {
  auto& socket = lanes_[frame.channel];
  const bool sent = socket.lane.try_send(frame, payload, borrowed);
  watch(socket);
  if (sent) silence_.sent();
  return sent;
}

bool TcpChannel::look(Silence::Time now, std::chrono::milliseconds limit) noexcept {
  bool owed = false;
  for (auto& socket : lanes_) {
    if (!socket.lane.broken().empty()) continue;
    const auto answers = base::tcp_ack_status(socket.lane.socket());
    if (!answers) continue;
    if (socket.silence.after(*answers, now) >= limit) socket.lane.give_up(limit);
    owed |= !socket.lane.has_arrived();
  }
  return owed;
}

void TcpChannel::on_ready(int descriptor, uint32_t events) {
  for (auto& socket : lanes_) {
    if (socket.lane.socket() != descriptor) continue;
    if ((events & EPOLLOUT) != 0) socket.lane.push();
    watch(socket);
    socket.readable |= (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
  }
}

PeerConnection::ReceiveStatus TcpChannel::receive(FrameSink& sink) noexcept {
  bool moved = false;
  for (auto& socket : lanes_) {
    if (socket.readable) moved |= socket.lane.receive(sink);
    socket.readable = false;  // still so, if the poller says it again
    if (socket.lane.has_ended()) poller_.remove(socket.lane.socket());
  }
  const bool ended = is_over();
  if (ended && !moved)  // the other lanes may hold what came before the end
    for (auto& socket : lanes_)
      if (socket.lane.broken().empty()) moved |= socket.lane.receive(sink);
  if (moved) return ReceiveStatus::kSome;
  if (!ended) return ReceiveStatus::kNothing;
  // What went wrong, before what only ended.
  for (const bool has_ended : {false, true})
    for (const auto& socket : lanes_) {
      if (!broken_.empty() || socket.lane.has_ended() != has_ended) continue;
      broken_ = socket.lane.broken();
      code_ = socket.lane.code();
    }
  return ReceiveStatus::kBroken;
}

bool TcpChannel::has_unflushed() const noexcept {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const auto& socket) { return socket.lane.blocked(); });
}

bool TcpChannel::is_delivered() const noexcept {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const auto& socket) { return socket.lane.has_arrived(); });
}

void TcpChannel::cancel_writes(ConstBytes range) noexcept {
  for (auto& socket : lanes_) socket.lane.withdraw(range);
}

}  // namespace torch::comms::transport::tcp
