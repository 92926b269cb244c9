#include "transport/tcp/tcp_transport.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/net/interfaces.hpp"
#include "base/net/listener.hpp"
#include "base/os/log.hpp"
#include "transport/connect/handshake_queue.hpp"
#include "transport/protocol/framed_transport.hpp"
#include "transport/tcp/tcp_connection.hpp"
#include "transport/tcp/tcp_connector.hpp"
#include "transport/tcp/tcp_handshake.hpp"

namespace torch::comms::transport::tcp {
namespace {

TcpOptions with_defaults(TcpOptions options) {
  if (options.sockets < 1 || options.sockets > kMaxChannels || options.chunk_bytes < 256 ||
      options.chunk_bytes % 64 != 0 || options.chunk_bytes > kMaxPayload)
    throw CommError(
        Errc::kInvalidArgument,
        "invalid tcp options: " + std::to_string(options.sockets) + " sockets and chunks of " +
            std::to_string(options.chunk_bytes) +
            " bytes; expected 1 to 8 sockets, and chunks of 256 bytes to 1 MiB in multiples of 64");
  if (options.eager_bytes == 0) options.eager_bytes = 64u << 10;
  options.eager_bytes = std::min<uint64_t>(options.eager_bytes, options.chunk_bytes);
  return options;
}

// The sockets of one connection until all have arrived.
struct PartialConnection {
  uint64_t attempt = 0;
  std::vector<base::FileDescriptor> sockets;
};

class TcpTransport final : public FramedTransport, private Poller::Client {
 public:
  TcpTransport(const TcpOptions& options, base::AddressChoice choice)
      : FramedTransport(options, {"tcp", options.rank, random_number(), host_identity(), {}}),
        tcp_(options),
        reason_(std::move(choice.reason)),
        keepalive_(poller_, tcp_.keepalive_timeout),
        listener_(base::listen_on_all_interfaces(tcp_.port)) {
    poller_.add(listener_.get(), EPOLLIN, *this);
    for (const auto& address : choice.addresses)
      endpoint_.addresses.push_back(base::format_address(address, tcp_.port));
  }
  ~TcpTransport() override { close_peers(); }

  std::string_view name() const noexcept override { return "tcp"; }
  TransportCapabilities capabilities() const override {
    return {
        .eager_bytes = options_.eager_bytes, .chunk_bytes = tcp_.chunk_bytes, .reason = reason_};
  }
  int event_fd() const noexcept override { return poller_.event_fd(); }
  uint64_t rejected() const noexcept { return rejected_; }

 private:
  void start_connection(int peer, const Endpoint& endpoint) override;
  bool progress_connections() noexcept override;
  void on_ready(int socket, uint32_t events) override;
  void accept_pending();
  void reject(const PendingTcpConnection& pending) noexcept;
  bool handle_handshake(PendingTcpConnection& pending);
  void admit(PendingTcpConnection pending);
  void open_channel(int peer, std::vector<base::FileDescriptor> sockets);

  TcpOptions tcp_;
  std::string reason_;
  Poller poller_;
  KeepaliveWatch keepalive_;
  base::Listener listener_;
  HandshakeQueue<PendingTcpConnection> handshakes_{
      [this](PendingTcpConnection& pending) { return handle_handshake(pending); }};
  std::unordered_map<int, PartialConnection> partial_connections_;     // by peer
  std::unordered_map<int, std::unique_ptr<TcpConnector>> connectors_;  // by peer
  uint64_t rejected_ = 0;
};

void TcpTransport::start_connection(int peer, const Endpoint& endpoint) {
  if (peer == options_.rank)
    throw CommError(Errc::kInvalidArgument,
                    "a rank connects to itself by the self transport, not by tcp",
                    {.rank = options_.rank, .peer = peer});
  if (peer < options_.rank || connectors_.contains(peer)) return;  // the smaller rank connects
  TcpHello hello;
  hello.channels = static_cast<uint8_t>(tcp_.sockets);
  hello.from = options_.rank;
  hello.to = peer;
  hello.instance = endpoint.instance;
  hello.job = options_.job;
  connectors_[peer] =
      std::make_unique<TcpConnector>(endpoint, hello, poller_, tcp_.keepalive_timeout);
}

bool TcpTransport::progress_connections() noexcept {
  bool moved = false;
  try {
    moved = poller_.poll();
    for (auto next = connectors_.begin(); next != connectors_.end();) {
      auto& [peer, connector] = *next;
      const bool failed = !connector->error_text().empty();
      if (failed) fail(peer, connector->error_code(), connector->error_text());
      if (connector->is_done()) open_channel(peer, connector->release_sockets());
      next = failed || state(peer) != PeerState::kConnecting ? connectors_.erase(next)
                                                             : std::next(next);
    }
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kWarning, std::string("tcp transport: ") + error.what());
  }
  return moved;
}

void TcpTransport::open_channel(int peer, std::vector<base::FileDescriptor> sockets) {
  open(peer,
       std::make_unique<TcpConnection>(std::move(sockets), tcp_.chunk_bytes, poller_, keepalive_));
}

void TcpTransport::accept_pending() {
  while (auto socket = listener_.accept()) {
    poller_.add(socket.get(), EPOLLIN, *this);
    if (const auto oldest = handshakes_.add(PendingTcpConnection(std::move(socket))))
      reject(*oldest);
  }
}

void TcpTransport::reject(const PendingTcpConnection& pending) noexcept {
  ++rejected_;
  poller_.remove(pending.socket());
}

// Accepts or rejects a connection.
// Returns: false while its hello is incomplete.
bool TcpTransport::handle_handshake(PendingTcpConnection& pending) {
  const auto read = pending.read();
  if (read == PendingTcpConnection::State::kIncomplete) return false;
  const TcpEndpointId endpoint_id{options_.rank, endpoint_.instance, options_.job};
  if (read == PendingTcpConnection::State::kComplete &&
      why_not(pending.hello(), endpoint_id) == nullptr)
    admit(std::move(pending));
  else
    reject(pending);
  return true;
}

void TcpTransport::on_ready(int socket, uint32_t) {
  if (socket == listener_.get()) return accept_pending();
  handshakes_.poll_socket(socket);
}

void TcpTransport::admit(PendingTcpConnection pending) {
  const auto& hello = pending.hello();
  const int peer = hello.from;
  auto& partial = partial_connections_[peer];
  if (partial.attempt != hello.attempt || partial.sockets.size() != hello.channels) {
    for (const auto& socket : partial.sockets)
      if (socket) poller_.remove(socket.get());
    partial = {hello.attempt, {}};
    partial.sockets.resize(hello.channels);
  }
  auto& slot = partial.sockets[hello.channel];
  if (slot || peer_of(peer).state() != PeerState::kConnecting) {
    reject(pending);
    if (!slot) partial_connections_.erase(peer);
    return;
  }
  slot = pending.release_socket();
  // The peer sends nothing more before the welcome; the connection sees the end of the socket
  // later.
  poller_.change(slot.get(), 0);
  for (const auto& socket : partial.sockets)
    if (!socket) return;
  auto sockets = std::move(partial.sockets);
  partial_connections_.erase(peer);
  const TcpWelcome welcome;
  // An empty socket buffer takes the welcome; a broken socket is seen later.
  for (const auto& socket : sockets)
    static_cast<void>(::send(socket.get(), &welcome, sizeof welcome, MSG_NOSIGNAL));
  open_channel(peer, std::move(sockets));
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(TcpOptions options) {
  options = with_defaults(std::move(options));
  auto choice = base::choose_addresses(base::interface_addresses(), options.interface);
  return std::make_unique<TcpTransport>(options, std::move(choice));
}

uint64_t rejected_connections(const Transport& tcp) {
  return dynamic_cast<const TcpTransport&>(tcp).rejected();
}

}  // namespace torch::comms::transport::tcp
