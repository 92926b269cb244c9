#include "core/rendezvous/tcp_probe.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/os/handles.hpp"
#include "base/os/host.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

using bootstrap::Deadline;
using std::chrono::milliseconds;

base::FileDescriptor open_socket(int family, int type) {
  return base::FileDescriptor(::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

struct ProbeAddress {
  sockaddr_storage address{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

struct ResolvedHost {
  std::vector<ProbeAddress> endpoints;
  std::string error;  // the reason why there are no endpoints
};

// `flags`: ai_flags of getaddrinfo().
ResolvedHost resolve(const std::string& host, uint16_t port, int flags = 0) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) return {{}, std::string("the name is not known: ") + ::gai_strerror(code)};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  ResolvedHost found;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    ProbeAddress endpoint;
    std::memcpy(&endpoint.address, a->ai_addr, a->ai_addrlen);
    endpoint.size = a->ai_addrlen;
    found.endpoints.push_back(endpoint);
  }
  return found;
}

constexpr milliseconds kMinResolveTimeout{
    200};  // a name gets this much time even near the deadline

// Resolves a name within a timeout; getaddrinfo() takes many seconds if the name server does not
// answer.
ResolvedHost resolve_within(const std::string& host, uint16_t port, milliseconds limit) {
  if (auto number = resolve(host, port, AI_NUMERICHOST); !number.endpoints.empty()) return number;
  try {
    return run_with_timeout(std::max(limit, kMinResolveTimeout),
                            [host, port] { return resolve(host, port); });
  } catch (const CallTimedOut&) {
    return {{}, "the name server does not answer"};
  }
}

// Returns: 0, or the errno of the attempt.
int try_connect(const ProbeAddress& endpoint, Deadline deadline) {
  const auto socket = open_socket(endpoint.get()->sa_family, SOCK_STREAM);
  if (!socket) return errno;
  if (::connect(socket.get(), endpoint.get(), endpoint.size) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd wanted{socket.get(), POLLOUT, 0};
  while (!deadline.has_passed()) {
    check_interrupt();
    if (::poll(&wanted, 1,
               static_cast<int>(std::min(deadline.remaining(), milliseconds(50)).count())) <= 0)
      continue;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
  }
  return ETIMEDOUT;
}

// Returns: an empty text, or why no address of `host` accepts a connection.
std::string try_host(const std::string& host, uint16_t port, Deadline deadline) {
  const ResolvedHost found = resolve_within(host, port, deadline.remaining());
  if (found.endpoints.empty()) return found.error;
  int error = 0;
  for (const auto& endpoint : found.endpoints) {
    // Retransmission after one lost packet takes one second, after two it takes three.
    const Deadline each(std::min(deadline.remaining(), milliseconds(3500)));
    error = try_connect(endpoint, each);
    if (error == 0) return {};
  }
  return std::strerror(error);
}

// Returns: the addresses as peers write them, without the interface suffix of a link-local address.
std::vector<std::string> interface_addresses() {
  std::vector<std::string> found;
  for (const auto& own : base::interface_addresses())
    found.push_back(own.address.substr(0, own.address.find('%')));
  return found;
}

constexpr milliseconds kResolveTimeout{2000};  // for names that only improve a text or a choice

// Returns: the first address of `host` that an interface of this machine has.
std::string find_own_address(const std::string& host) {
  const auto own = interface_addresses();
  for (const auto& endpoint : resolve_within(host, 1, kResolveTimeout).endpoints) {
    const auto text = base::format_address(endpoint.get());
    if (is_loopback(text) || std::find(own.begin(), own.end(), text) != own.end()) return text;
  }
  return {};
}

// Returns: the source address of packets to `endpoint`. Nothing is sent.
std::string source_towards(const ProbeAddress& endpoint) {
  const auto socket = open_socket(endpoint.get()->sa_family, SOCK_DGRAM);
  ProbeAddress own;
  own.size = sizeof own.address;
  if (!socket || ::connect(socket.get(), endpoint.get(), endpoint.size) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own.address), &own.size) != 0)
    return {};
  return base::format_address(own.get());
}

std::string route_source(const std::string& host) {
  for (const auto& endpoint : resolve_within(host, 1, kResolveTimeout).endpoints) {
    const auto text = source_towards(endpoint);
    if (!text.empty() && !is_loopback(text)) return text;
  }
  return {};
}

}  // namespace

void wait_until_reachable(const std::string& host, uint16_t port, Deadline deadline,
                          const Context& context, RefusedConnectPolicy refusal) {
  milliseconds pause{2};
  std::string why;
  while (true) {
    const auto last = try_host(host, port, deadline);
    if (last.empty()) return;
    check_interrupt();
    // An attempt that the deadline cut short says less than earlier attempts.
    if (why.empty() || !deadline.has_passed()) why = last;
    const bool has_ended =
        refusal == RefusedConnectPolicy::kFail && last == std::strerror(ECONNREFUSED);
    if (has_ended || deadline.has_passed())
      throw CommError(has_ended ? Errc::kPeerFailed : Errc::kTimeout,
                      "cannot reach tcp://" + host + ":" + std::to_string(port) + ": " + why,
                      context);
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
    pause = std::min(pause * 2, milliseconds(250));
  }
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

bool is_own_address(const std::string& host) { return !find_own_address(host).empty(); }

std::string own_address(const std::string& hint) {
  if (!hint.empty()) {
    if (const auto own = find_own_address(hint); !own.empty() && !is_loopback(own)) return own;
    if (const auto source = route_source(hint); !source.empty()) return source;
  }
  // These documentation addresses take the default route.
  for (const char* far : {"192.0.2.1", "2001:db8::1"})
    if (const auto source = route_source(far); !source.empty()) return source;
  for (const auto& own : interface_addresses())
    if (!is_loopback(own) && !own.starts_with("fe80:")) return own;
  return "127.0.0.1";
}

}  // namespace torch::comms
