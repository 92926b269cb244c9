#include "transport/tcp/connecting.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/system_error.hpp"

namespace torch::comms::transport::tcp {
namespace {

constexpr std::chrono::milliseconds kPatience{3500};  // with an address that does not answer
constexpr size_t kRounds = 3;  // through all addresses: a crowded door may shut on us once

}  // namespace

Connecting::Connecting(const Endpoint& peer, const Hello& hello, Poller& poller)
    : peer_(peer), hello_(hello), poller_(poller) {
  try_next("it has no address");
}

Connecting::~Connecting() { close(); }

void Connecting::close() noexcept {
  for (auto& socket : sockets_)
    if (socket.socket) poller_.remove(socket.socket.get());
  sockets_.clear();
}

void Connecting::try_next(std::string why) {
  close();
  code_ = Errc::kPeerFailed;
  while (tries_ < kRounds * peer_.addresses.size()) {
    const auto& text = peer_.addresses[next_];
    next_ = (next_ + 1) % peer_.addresses.size();
    ++tries_;
    const auto address = base::parse_address(text);
    if (!address) {
      why = "'" + text + "' is no address";
      continue;
    }
    hello_.attempt = random_number();
    if (open_all(*address)) return;
    const int error = errno;
    why = text + ": " + std::strerror(error);
    code_ = base::is_scarcity(error) ? Errc::kResourceExhausted : Errc::kPeerFailed;
    close();
  }
  failed_ = "cannot be reached: " + why;
}

// False, and errno.
bool Connecting::open_all(const base::SocketAddress& address) {
  for (unsigned lane = 0; lane < hello_.lanes; ++lane) {
    auto socket = base::begin_connect(address);
    if (!socket) return false;
    base::tune(socket.get(), kPatience);
    try {
      poller_.add(socket.get(), EPOLLOUT, *this);
    } catch (const CommError&) {
      return false;
    }
    sockets_.push_back({std::move(socket)});
  }
  return true;
}

bool Connecting::greet(Socket& socket, unsigned lane) {
  Hello hello = hello_;
  hello.lane = static_cast<uint8_t>(lane);
  socket.greeted = true;
  poller_.change(socket.socket.get(), EPOLLIN);
  // An empty socket buffer takes 48 bytes.
  return ::send(socket.socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello;
}

void Connecting::on_ready(int descriptor, uint32_t) {
  const auto found = std::find_if(sockets_.begin(), sockets_.end(),
                                  [&](const auto& s) { return s.socket.get() == descriptor; });
  if (found == sockets_.end()) return;
  const auto address =
      peer_.addresses[(next_ + peer_.addresses.size() - 1) % peer_.addresses.size()];
  if (const int error = base::connect_result(descriptor); error != 0)
    return try_next(address + ": " + std::strerror(error));
  if (!found->greeted) {
    if (!greet(*found, static_cast<unsigned>(found - sockets_.begin())))
      try_next(address + ": " + std::strerror(errno));
    return;
  }
  if (found->welcome == sizeof(Welcome)) return;
  // Not one byte more: what follows is the channel's.
  Welcome welcome;
  auto* at = reinterpret_cast<std::byte*>(&welcome);
  const auto got = ::recv(descriptor, at, sizeof welcome - found->welcome, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return try_next(address + ": it closed the connection instead of a welcome");
  found->welcome += static_cast<size_t>(got);
  if (found->welcome == static_cast<size_t>(got) && got >= 4 && welcome.magic != Hello::kMagic)
    return try_next(address + ": something else listens there");
  // Frames may follow before the other sockets are welcome.
  if (found->welcome == sizeof(Welcome)) poller_.change(descriptor, 0);
}

bool Connecting::done() const noexcept {
  return !sockets_.empty() && std::all_of(sockets_.begin(), sockets_.end(), [](const auto& s) {
    return s.welcome == sizeof(Welcome);
  });
}

std::vector<base::FileDescriptor> Connecting::take() noexcept {
  std::vector<base::FileDescriptor> taken;
  taken.reserve(sockets_.size());
  for (auto& socket : sockets_) taken.push_back(std::move(socket.socket));
  sockets_.clear();
  return taken;
}

}  // namespace torch::comms::transport::tcp
