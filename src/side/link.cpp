#include "side/link.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "base/socket.hpp"
#include "side/note.hpp"
#include "transport/connect_retry.hpp"

namespace torch::comms::side {
namespace {

using std::chrono::milliseconds;
using transport::kRetryDelays;
using transport::tcp::TcpHello;
using transport::tcp::TcpWelcome;

// A rank listens as long as it lives: refused so often, it does not.
constexpr int kRefusals = 3;
constexpr milliseconds kRest{20}, kLongRest{1000};
// How long the other side may take to dial before it is looked for.
constexpr milliseconds kBetweenProbes{1000};
// With an address from which nothing comes back, before the next one is tried.
constexpr milliseconds kPatience{3000};
constexpr size_t kPiece = 64 << 10;
// To a rank that does not read, as one that is stopped, nothing more is said.
constexpr size_t kMostUnsent = size_t{16} << 20;

}  // namespace

Link::Link(std::string contact, const TcpHello& hello, bool dials, Moment now)
    : contact_(std::move(contact)), hello_(hello), dials_(dials) {
  timer_ = now + kBetweenProbes;
  if (!dials) return;
  state_ = State::kDialing;
  dial(now);
}

void Link::call(Moment now) {
  if (state_ != State::kAwaited) return;
  state_ = State::kDialing;
  dial(now);
}

void Link::take(base::FileDescriptor socket) {
  if (dials_ || state_ == State::kUp || state_ == State::kLost) return;
  const TcpWelcome welcome;
  socket_ = std::move(socket);
  in_.clear();
  dial_.reset();
  timer_ = kNever;
  state_ = State::kUp;
  out_.insert(0, reinterpret_cast<const char*>(&welcome), sizeof welcome);
  flush();
}

void Link::say(std::string_view text) {
  if (state_ == State::kLost || out_.size() > kMostUnsent) return;
  const auto size = static_cast<uint32_t>(text.size());
  out_.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
  if (state_ == State::kUp) flush();
}

int Link::socket() const noexcept { return dial_ ? dial_->socket() : socket_.get(); }

short Link::events() const noexcept {
  if (dial_) return POLLOUT;
  return static_cast<short>(POLLIN | (state_ == State::kUp && !out_.empty() ? POLLOUT : 0));
}

void Link::dial(Moment now) {
  timer_ = now + kPatience;
  dial_ = std::make_unique<bootstrap::Connector>(contact_, address_);
  addresses_ = dial_->address_count();
  if (dial_->state() == bootstrap::Connector::State::kFailed) not_reached(dial_->is_refused(), now);
}

void Link::warn(const std::string& why) {
  if (std::exchange(warned_, true)) return;
  base::log(base::LogLevel::kWarning, "side channel: rank " + std::to_string(hello_.to) +
                                          " cannot be reached at " + contact_ +
                                          (why.empty() ? "" : ": " + why) + ", and is tried again");
}

void Link::not_reached(bool refused, Moment now) {
  const int error = dial_ ? dial_->error() : 0;
  if (dial_) address_ = dial_->address_index() + 1;
  dial_.reset();
  socket_ = {};
  const bool awaited = state_ == State::kAwaited;
  if (refused && ++refusals_ >= kRefusals) return lose();
  if (!refused && !awaited) warn(error == 0 ? "" : std::strerror(error));
  if (!awaited) state_ = State::kResting;
  timer_ = now + (refused ? kRest : awaited ? kBetweenProbes : kLongRest);
}

// By one that is on its way out, which soon refuses, or has no descriptor for now; or by something
// else that has this address where the dialing side is.
void Link::turned_away(Moment now) {
  socket_ = {};
  in_.clear();
  ++address_;
  const size_t rounds = ++turns_away_ / addresses_;
  if (rounds > kRetryDelays.size()) return lose();
  state_ = State::kResting;
  timer_ = turns_away_ % addresses_ == 0 ? now + kRetryDelays[rounds - 1] : now;
}

void Link::on_dialing(Moment now) {
  switch (dial_->on_ready()) {
    case bootstrap::Connector::State::kConnecting:
      return;
    case bootstrap::Connector::State::kFailed:
      return not_reached(dial_->is_refused(), now);
    case bootstrap::Connector::State::kConnected:
      break;
  }
  if (state_ == State::kAwaited) {  // it lives, and will dial
    dial_.reset();
    refusals_ = 0;
    timer_ = now + kBetweenProbes;
    return;
  }
  socket_ = dial_->release_socket();
  address_ = dial_->address_index();
  timer_ = kNever;
  dial_.reset();
  state_ = State::kGreeting;
  // A new socket's buffer has room for these few bytes.
  if (::send(socket_.get(), &hello_, sizeof hello_, MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(sizeof hello_))
    return transport::is_closed_by_peer(errno) ? turned_away(now) : not_reached(false, now);
}

void Link::on_ready(short events, Moment now) {
  if (state_ == State::kLost || events == 0) return;
  if (dial_) return on_dialing(now);
  if ((events & ~POLLOUT) != 0) read();
  if (state_ == State::kGreeting) {
    TcpWelcome welcome;
    if (!socket_) return turned_away(now);
    if (in_.size() < sizeof welcome) return;
    std::memcpy(&welcome, in_.data(), sizeof welcome);
    if (const auto why = handshake_error(welcome); !why.empty()) {
      warn(why);
      return turned_away(now);
    }
    in_.erase(0, sizeof welcome);
    refusals_ = 0;
    turns_away_ = 0;
    state_ = State::kUp;
  }
  if (state_ != State::kUp) return;
  if (!socket_) return lose();
  flush();
}

void Link::read() {
  std::array<char, kPiece> bytes;
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

void Link::flush() {
  while (socket_ && !out_.empty()) {
    const auto sent = ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      // What it has said before its end is still to be read: poll() tells of the end.
      if (errno != EAGAIN && errno != EWOULDBLOCK) out_.clear();
      return;
    }
    out_.erase(0, static_cast<size_t>(sent));
  }
}

bool Link::next(std::string& text) {
  uint32_t size = 0;
  if (in_.size() < sizeof size || (state_ != State::kUp && state_ != State::kLost)) return false;
  std::memcpy(&size, in_.data(), sizeof size);
  if (size > Note::kMostBytes) {
    in_.clear();
    lose();
    return false;
  }
  if (in_.size() < sizeof size + size) return false;
  text.assign(in_, sizeof size, size);
  in_.erase(0, sizeof size + size);
  return true;
}

void Link::on_time(Moment now) {
  if (now < timer_ || state_ == State::kLost) return;
  if (dial_) return not_reached(false, now);
  if (state_ == State::kResting) state_ = State::kDialing;
  dial(now);
}

void Link::lose() noexcept {
  state_ = State::kLost;
  dial_.reset();
  socket_ = {};
  out_.clear();
}

}  // namespace torch::comms::side
