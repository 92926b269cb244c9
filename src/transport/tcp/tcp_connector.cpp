#include "transport/tcp/tcp_connector.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/os/system_error.hpp"
#include "transport/connect/connect_retry.hpp"

namespace torch::comms::transport::tcp {
namespace {

constexpr std::chrono::milliseconds kConnectTimeout{3500};  // for an address that does not answer
constexpr size_t kRounds = kRetryDelays.size() + 1;         // rounds through all addresses

}  // namespace

TcpConnector::TcpConnector(const Endpoint& peer, const TcpHello& hello, Poller& poller,
                           std::chrono::milliseconds keepalive_timeout)
    : peer_(peer), hello_(hello), poller_(poller), keepalive_timeout_(keepalive_timeout) {
  try_next("its endpoint has no address");
}

TcpConnector::~TcpConnector() { close(); }

void TcpConnector::close() noexcept {
  for (auto& socket : sockets_)
    if (socket.socket) poller_.remove(socket.socket.get());
  sockets_.clear();
  if (retry_timer_) poller_.remove(retry_timer_->get());
  retry_timer_.reset();
}

void TcpConnector::try_next(std::string why, bool is_rejected) {
  close();
  error_code_ = Errc::kPeerFailed;
  was_rejected_ |= is_rejected;
  while (tries_ < kRounds * peer_.addresses.size()) {
    if (tries_ % peer_.addresses.size() == 0 && starts_backoff(tries_ / peer_.addresses.size()))
      return;
    address_ = peer_.addresses[tries_ % peer_.addresses.size()];
    ++tries_;
    const auto address = base::parse_address(address_);
    if (!address) {
      why = "'" + address_ + "' is not a valid address";
      continue;
    }
    hello_.attempt = random_number();
    if (open_all(*address)) return;
    const int error = errno;
    why = address_ + ": " + std::strerror(error);
    error_code_ = base::is_resource_exhausted(error) ? Errc::kResourceExhausted : Errc::kPeerFailed;
    close();
  }
  error_text_ = "cannot connect by tcp: " + why;
}

// Starts a delay before a round if the peer closed a connection in the round before.
// Returns: whether a delay has begun.
bool TcpConnector::starts_backoff(size_t round) {
  if (!std::exchange(was_rejected_, false)) return false;
  try {
    poller_.add(retry_timer_.emplace().get(), EPOLLIN, *this);
  } catch (const CommError&) {
    retry_timer_.reset();
    return false;  // this process has no free descriptor either
  }
  retry_timer_->after(kRetryDelays[round - 1]);
  return true;
}

void TcpConnector::on_socket_ended(int error) {
  const bool is_rejected = is_closed_by_peer(error);
  const char* why =
      is_rejected ? "the peer closed the connection before its welcome" : std::strerror(error);
  try_next(address_ + ": " + why, is_rejected);
}

// Opens a socket for each channel.
// Returns: false and errno if one fails.
bool TcpConnector::open_all(const base::SocketAddress& address) {
  for (unsigned channel = 0; channel < hello_.channels; ++channel) {
    auto socket = base::begin_connect(address);
    if (!socket) return false;
    base::set_keepalive_and_user_timeout(socket.get(), kConnectTimeout);
    try {
      poller_.add(socket.get(), EPOLLOUT, *this);
    } catch (const CommError&) {
      return false;
    }
    sockets_.push_back({std::move(socket)});
  }
  return true;
}

bool TcpConnector::send_hello(ConnectingSocket& socket, unsigned channel) {
  TcpHello hello = hello_;
  hello.channel = static_cast<uint8_t>(channel);
  socket.has_sent_hello = true;
  base::set_keepalive_and_user_timeout(socket.socket.get(), keepalive_timeout_);
  poller_.change(socket.socket.get(), EPOLLIN);
  // An empty socket buffer takes 48 bytes.
  return ::send(socket.socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello;
}

void TcpConnector::on_ready(int descriptor, uint32_t) {
  if (retry_timer_ && retry_timer_->get() == descriptor) return try_next("");
  const auto found = std::find_if(sockets_.begin(), sockets_.end(),
                                  [&](const auto& s) { return s.socket.get() == descriptor; });
  if (found == sockets_.end()) return;
  if (const int error = base::connect_result(descriptor); error != 0) return on_socket_ended(error);
  if (!found->has_sent_hello) {
    if (!send_hello(*found, static_cast<unsigned>(found - sockets_.begin())))
      on_socket_ended(errno);
    return;
  }
  if (found->is_welcome()) return;
  // Reads no byte after the welcome, because the connection reads what follows.
  auto* at = reinterpret_cast<std::byte*>(&found->welcome);
  const auto got = ::recv(descriptor, at + found->bytes_read,
                          sizeof(TcpWelcome) - found->bytes_read, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return on_socket_ended(got == 0 ? ECONNRESET : errno);
  found->bytes_read += static_cast<size_t>(got);
  // Bytes that have not arrived yet hold the expected values.
  if (const auto why = handshake_error(found->welcome); !why.empty())
    return try_next(address_ + ": " + why);
  // Frames may follow before the other sockets have their welcome.
  if (found->is_welcome()) poller_.change(descriptor, 0);
}

bool TcpConnector::is_done() const noexcept {
  return !sockets_.empty() && std::all_of(sockets_.begin(), sockets_.end(),
                                          [](const auto& s) { return s.is_welcome(); });
}

std::vector<base::FileDescriptor> TcpConnector::release_sockets() noexcept {
  std::vector<base::FileDescriptor> released;
  released.reserve(sockets_.size());
  for (auto& socket : sockets_) released.push_back(std::move(socket.socket));
  sockets_.clear();
  return released;
}

}  // namespace torch::comms::transport::tcp
