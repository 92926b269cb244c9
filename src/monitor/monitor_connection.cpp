#include "monitor/monitor_connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/net/socket.hpp"
#include "base/os/log.hpp"
#include "monitor/monitor_message.hpp"
#include "transport/connect/connect_retry.hpp"

namespace torch::comms::monitor {
namespace {

using std::chrono::milliseconds;
using transport::kRetryDelays;
using transport::tcp::TcpHello;
using transport::tcp::TcpWelcome;

// A rank listens as long as it lives: after this many refusals its process is assumed to have
// ended.
constexpr int kMaxRefusals = 3;
// Pauses before the next connect: after a refusal, and after any other failure.
constexpr milliseconds kRefusedDelay{20}, kUnreachableDelay{1000};
// How long to wait for the peer to connect before probing whether it still listens.
constexpr milliseconds kProbeInterval{1000};
// The connect timeout of one address, before the next address is tried.
constexpr milliseconds kConnectTimeout{3000};
constexpr size_t kReadBytes = 64 << 10;
// Bytes queued for a peer that does not read, such as a stopped process. Beyond that, messages are
// dropped.
constexpr size_t kMaxUnsent = size_t{16} << 20;

}  // namespace

MonitorConnection::MonitorConnection(std::string contact, const TcpHello& hello, bool is_initiator,
                                     Moment now)
    : contact_(std::move(contact)), hello_(hello), is_initiator_(is_initiator) {
  timer_ = now + kProbeInterval;
  if (!is_initiator) return;
  state_ = State::kConnecting;
  start_connect(now);
}

void MonitorConnection::connect_now(Moment now) {
  if (state_ != State::kExpectingPeer) return;
  state_ = State::kConnecting;
  start_connect(now);
}

void MonitorConnection::adopt(base::FileDescriptor socket) {
  if (is_initiator_ || state_ == State::kConnected || state_ == State::kFailed) return;
  const TcpWelcome welcome;
  socket_ = std::move(socket);
  in_.clear();
  connector_.reset();
  timer_ = kNever;
  state_ = State::kConnected;
  out_.insert(0, reinterpret_cast<const char*>(&welcome), sizeof welcome);
  flush();
}

void MonitorConnection::send(std::string_view text) {
  if (state_ == State::kFailed || out_.size() > kMaxUnsent) return;
  const auto size = static_cast<uint32_t>(text.size());
  out_.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
  if (state_ == State::kConnected) flush();
}

int MonitorConnection::socket() const noexcept {
  return connector_ ? connector_->socket() : socket_.get();
}

short MonitorConnection::events() const noexcept {
  if (connector_) return POLLOUT;
  return static_cast<short>(POLLIN | (state_ == State::kConnected && !out_.empty() ? POLLOUT : 0));
}

void MonitorConnection::start_connect(Moment now) {
  timer_ = now + kConnectTimeout;
  connector_ = std::make_unique<bootstrap::Connector>(contact_, address_);
  addresses_ = connector_->address_count();
  if (connector_->state() == bootstrap::Connector::State::kFailed)
    on_connect_failed(connector_->is_refused(), now);
}

void MonitorConnection::warn(const std::string& why) {
  if (std::exchange(has_warned_, true)) return;
  base::log(base::LogLevel::kWarning, "side channel: cannot reach rank " +
                                          std::to_string(hello_.to) + " at " + contact_ +
                                          (why.empty() ? "" : ": " + why) + "; retrying");
}

void MonitorConnection::on_connect_failed(bool refused, Moment now) {
  const int error = connector_ ? connector_->error() : 0;
  if (connector_) address_ = connector_->address_index() + 1;
  connector_.reset();
  socket_ = {};
  const bool is_probe = state_ == State::kExpectingPeer;
  if (refused && ++refusals_ >= kMaxRefusals) return fail();
  if (!refused && !is_probe) warn(error == 0 ? "" : std::strerror(error));
  if (!is_probe) state_ = State::kBackoff;
  timer_ = now + (refused ? kRefusedDelay : is_probe ? kProbeInterval : kUnreachableDelay);
}

// Handles a connection that was accepted and closed. The peer is exiting and will soon refuse
// connections, or it is out of descriptors. Or another machine has this address in the network of
// this rank.
void MonitorConnection::on_rejected(Moment now) {
  socket_ = {};
  in_.clear();
  ++address_;
  const size_t rounds = ++rejections_ / addresses_;
  if (rounds > kRetryDelays.size()) return fail();
  state_ = State::kBackoff;
  timer_ = rejections_ % addresses_ == 0 ? now + kRetryDelays[rounds - 1] : now;
}

void MonitorConnection::on_connecting(Moment now) {
  switch (connector_->on_ready()) {
    case bootstrap::Connector::State::kConnecting:
      return;
    case bootstrap::Connector::State::kFailed:
      return on_connect_failed(connector_->is_refused(), now);
    case bootstrap::Connector::State::kConnected:
      break;
  }
  if (state_ == State::kExpectingPeer) {  // the peer is alive and will connect
    connector_.reset();
    refusals_ = 0;
    timer_ = now + kProbeInterval;
    return;
  }
  socket_ = connector_->release_socket();
  address_ = connector_->address_index();
  timer_ = kNever;
  connector_.reset();
  state_ = State::kHandshaking;
  // The buffer of a new socket has room for these few bytes.
  if (::send(socket_.get(), &hello_, sizeof hello_, MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(sizeof hello_))
    return transport::is_closed_by_peer(errno) ? on_rejected(now) : on_connect_failed(false, now);
}

void MonitorConnection::on_ready(short events, Moment now) {
  if (state_ == State::kFailed || events == 0) return;
  if (connector_) return on_connecting(now);
  if ((events & ~POLLOUT) != 0) read();
  if (state_ == State::kHandshaking) {
    TcpWelcome welcome;
    if (!socket_) return on_rejected(now);
    if (in_.size() < sizeof welcome) return;
    std::memcpy(&welcome, in_.data(), sizeof welcome);
    if (const auto why = handshake_error(welcome); !why.empty()) {
      warn(why);
      return on_rejected(now);
    }
    in_.erase(0, sizeof welcome);
    refusals_ = 0;
    rejections_ = 0;
    state_ = State::kConnected;
  }
  if (state_ != State::kConnected) return;
  if (!socket_) return fail();
  flush();
}

void MonitorConnection::read() {
  std::array<char, kReadBytes> bytes;
  while (socket_) {
    const auto got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      socket_ = {};
      return;
    }
    in_.append(bytes.data(), static_cast<size_t>(got));
    if (static_cast<size_t>(got) < bytes.size()) return;
  }
}

void MonitorConnection::flush() {
  while (socket_ && !out_.empty()) {
    const auto sent = ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      // What the peer sent before its end is still to be read; poll() then reports the end.
      if (errno != EAGAIN && errno != EWOULDBLOCK) out_.clear();
      return;
    }
    out_.erase(0, static_cast<size_t>(sent));
  }
}

bool MonitorConnection::receive(std::string& text) {
  uint32_t size = 0;
  if (in_.size() < sizeof size || (state_ != State::kConnected && state_ != State::kFailed))
    return false;
  std::memcpy(&size, in_.data(), sizeof size);
  if (size > MonitorMessage::kMaxBytes) {
    in_.clear();
    fail();
    return false;
  }
  if (in_.size() < sizeof size + size) return false;
  text.assign(in_, sizeof size, size);
  in_.erase(0, sizeof size + size);
  return true;
}

void MonitorConnection::on_time(Moment now) {
  if (now < timer_ || state_ == State::kFailed) return;
  if (connector_) return on_connect_failed(false, now);
  if (state_ == State::kBackoff) state_ = State::kConnecting;
  start_connect(now);
}

void MonitorConnection::fail() noexcept {
  state_ = State::kFailed;
  connector_.reset();
  socket_ = {};
  out_.clear();
}

}  // namespace torch::comms::monitor
