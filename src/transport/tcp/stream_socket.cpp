#include "transport/tcp/stream_socket.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/os/system_error.hpp"

namespace torch::comms::transport::tcp {
namespace {

constexpr size_t kBuffer = 64u << 10;
// A rest of up to this size is copied, so that its send is done.
constexpr size_t kCopied = 16u << 10;
constexpr size_t kBytesAtOnce = 2u << 20;  // read before other channels get their turn

// Returns: whether there is no sign that the peer has closed the connection.
bool is_open(int socket) {
  pollfd polled{socket, POLLRDHUP, 0};
  return ::poll(&polled, 1, 0) == 0;
}

bool is_retryable(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

ssize_t send_pieces(int socket, std::span<const ConstBytes> pieces) noexcept {
  std::array<iovec, PeerConnection::kMaxPieces + 1> parts;
  size_t count = 0;
  for (const auto& piece : pieces)
    if (!piece.empty()) parts[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

bool is_local_error(int error) noexcept {
  constexpr std::array kWrongCalls{EFAULT, EMSGSIZE, EINVAL, EBADF, ENOTSOCK, EOPNOTSUPP};
  return base::is_resource_exhausted(error) || std::ranges::count(kWrongCalls, error) > 0;
}

StreamSocket::StreamSocket(base::FileDescriptor socket, uint32_t max_payload, unsigned channels)
    : socket_(std::move(socket)),
      max_payload_(max_payload),
      channels_(channels),
      buffer_(kBuffer) {}

void StreamSocket::fail(int error) noexcept {
  if (!error_text_.empty()) return;
  // The system reports an error once, to the next send or receive.
  if (error == 0 && send_error_ != EPIPE) error = send_error_;
  has_ended_ = error == 0;
  error_text_ =
      error == 0 ? "the tcp connection closed: the peer process has exited or closed the transport"
                 : std::string("the tcp connection failed: ") + std::strerror(error);
}

// Handles an error of a send. If the connection has ended, the socket is still read to its end,
// which reports the error. Any other error is reported here, because no read would report it.
void StreamSocket::fail_to_send(int error) noexcept {
  if (is_retryable(error)) return;
  send_error_ = error;
  if (!error_text_.empty()) return;
  if (!is_local_error(error)) {
    if (is_open(socket_.get())) fail(error);
    return;
  }
  error_code_ = base::is_resource_exhausted(error) ? Errc::kResourceExhausted : Errc::kSystem;
  error_text_ = std::string("sending on the tcp connection failed: ") + std::strerror(error);
}

bool StreamSocket::try_send(const Frame& frame, std::span<const ConstBytes> payload,
                            uint32_t* frames_in_use) noexcept {
  if (is_blocked() || !error_text_.empty() || send_error_ != 0) return false;
  std::array<ConstBytes, PeerConnection::kMaxPieces + 1> pieces;
  pieces[0] = std::as_bytes(std::span(&frame, 1));
  std::copy(payload.begin(), payload.end(), pieces.begin() + 1);
  const std::span<const ConstBytes> all(pieces.data(), payload.size() + 1);
  auto sent = send_pieces(socket_.get(), all);
  if (sent < 0) {
    fail_to_send(errno);
    if (send_error_ != 0) return false;
    sent = 0;  // kept and sent when the socket is writable
  }
  if (static_cast<size_t>(sent) < sizeof frame + frame.bytes)
    queue_unsent(all, static_cast<size_t>(sent), frames_in_use);
  return true;
}

void StreamSocket::queue_unsent(std::span<const ConstBytes> pieces, size_t sent,
                                uint32_t* frames_in_use) {
  size_t left = 0;
  for (const auto& piece : pieces) left += piece.size();
  left -= sent;
  // The header is a local variable of the caller, so it is always copied.
  const bool in_header = sent < sizeof(Frame);
  copy_.clear();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto piece = pieces[i].subspan(std::min(sent, pieces[i].size()));
    sent -= pieces[i].size() - piece.size();
    if (left <= kCopied || i == 0)
      copy_.insert(copy_.end(), piece.begin(), piece.end());
    else if (!piece.empty())
      unsent_.push_back(piece);
  }
  if (left <= kCopied || in_header) unsent_.insert(unsent_.begin(), copy_);
  if (left <= kCopied) return;
  frames_in_use_ = frames_in_use;
  ++*frames_in_use_;
}

void StreamSocket::finish_unsent() noexcept {
  unsent_.clear();
  if (frames_in_use_ != nullptr) --*frames_in_use_;
  frames_in_use_ = nullptr;
}

bool StreamSocket::flush() noexcept {
  if (!is_blocked() || send_error_ != 0 || !error_text_.empty()) return false;
  auto sent = send_pieces(socket_.get(), unsent_);
  if (sent < 0) {
    fail_to_send(errno);
    return false;
  }
  for (auto& piece : unsent_) {
    const auto part = std::min<size_t>(static_cast<size_t>(sent), piece.size());
    piece = piece.subspan(part);
    sent -= static_cast<ssize_t>(part);
  }
  std::erase_if(unsent_, [](const auto& piece) { return piece.empty(); });
  if (unsent_.empty()) finish_unsent();
  return true;
}

void StreamSocket::cancel_writes(ConstBytes range) noexcept {
  const auto inside = [&](const std::byte* at) {
    return at >= range.data() && at < range.data() + range.size();
  };
  if (in_payload_ && inside(target_.data())) {  // the rest of the payload is dropped
    staged_.resize(target_.size());
    target_ = staged_;
  }
  if (frames_in_use_ == nullptr || std::none_of(unsent_.begin(), unsent_.end(),
                                                [&](auto piece) { return inside(piece.data()); }))
    return;
  std::vector<std::byte> all;
  for (const auto& piece : unsent_) all.insert(all.end(), piece.begin(), piece.end());
  copy_ = std::move(all);
  finish_unsent();
  unsent_.push_back(copy_);
}

// Chooses the memory for the payload of the current frame.
// Returns: false if the header is invalid.
bool StreamSocket::begin_payload(FrameSink& sink) {
  if (const char* error = frame_error(frame_, max_payload_, channels_)) {
    error_text_ = std::string("protocol error: ") + error;
    return false;
  }
  in_payload_ = true;
  filled_ = 0;
  target_ = sink.payload_target(frame_);
  if (target_.empty()) {
    staged_.resize(frame_.bytes);
    target_ = staged_;
  }
  return true;
}

// Cuts the buffered bytes into frames.
// Returns: false if receiving must stop.
bool StreamSocket::cut_frames(FrameSink& sink) noexcept {
  while (true) {
    if (!in_payload_) {
      if (end_ - begin_ < sizeof(Frame)) return true;
      std::memcpy(&frame_, buffer_.data() + begin_, sizeof(Frame));
      begin_ += sizeof(Frame);
      if (frame_.bytes <= end_ - begin_) {  // whole: delivered from the buffer
        if (const char* error = frame_error(frame_, max_payload_, channels_)) {
          error_text_ = std::string("protocol error: ") + error;
          return false;
        }
        const ConstBytes payload(buffer_.data() + begin_, frame_.bytes);
        begin_ += frame_.bytes;
        if (!sink.deliver(frame_, payload)) return false;
        continue;
      }
      if (!begin_payload(sink)) return false;
    }
    const size_t part = std::min(end_ - begin_, target_.size() - filled_);
    std::memcpy(target_.data() + filled_, buffer_.data() + begin_, part);
    filled_ += part;
    begin_ += part;
    if (filled_ < target_.size()) return true;
    in_payload_ = false;
    if (!sink.deliver(frame_, target_)) return false;
  }
}

bool StreamSocket::read_into_payload(FrameSink& sink) noexcept {
  const auto room = target_.subspan(filled_);
  const auto got = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
  if (got <= 0) {
    if (got == 0 || !is_retryable(errno)) fail(got == 0 ? 0 : errno);
    return false;
  }
  filled_ += static_cast<size_t>(got);
  if (filled_ < target_.size()) return true;
  in_payload_ = false;
  return sink.deliver(frame_, target_);
}

bool StreamSocket::receive(FrameSink& sink) noexcept {
  bool moved = false;
  for (size_t bytes = 0; bytes < kBytesAtOnce && error_text_.empty();) {
    if (in_payload_ && begin_ == end_) {
      const size_t before = filled_;
      const bool more = read_into_payload(sink);
      moved |= filled_ != before;
      if (!more) break;
      bytes += filled_ > before ? filled_ - before : target_.size();
      continue;
    }
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const auto got =
        ::recv(socket_.get(), buffer_.data() + end_, buffer_.size() - end_, MSG_DONTWAIT);
    if (got <= 0) {
      if (got == 0 || !is_retryable(errno)) fail(got == 0 ? 0 : errno);
      break;
    }
    moved = true;
    end_ += static_cast<size_t>(got);
    bytes += static_cast<size_t>(got);
    if (!cut_frames(sink)) break;
    // Nothing more was available.
    if (!in_payload_ && static_cast<size_t>(got) < kBuffer / 2) break;
  }
  return moved;
}

bool StreamSocket::is_delivered() const noexcept {
  int left = 0;
  const bool known = ::ioctl(socket_.get(), SIOCOUTQ, &left) == 0;
  return send_error_ != 0 || (!is_blocked() && (!known || left == 0));
}

void StreamSocket::fail_keepalive(std::chrono::milliseconds timeout) noexcept {
  if (!error_text_.empty()) return;
  send_error_ = ETIMEDOUT;
  error_text_ = "the tcp keepalive timed out: the peer host has not acknowledged for " +
                std::to_string(timeout.count()) + " ms";
}

void StreamSocket::close_gracefully() noexcept {
  ::shutdown(socket_.get(), SHUT_WR);
  for (int i = 0; i < 16; ++i)
    if (::recv(socket_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT) <= 0) return;
}

}  // namespace torch::comms::transport::tcp
