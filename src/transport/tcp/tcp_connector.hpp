#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "base/net/socket.hpp"
#include "transport/connect/endpoint.hpp"
#include "transport/tcp/poller.hpp"
#include "transport/tcp/tcp_handshake.hpp"
#include "transport/waiting/timer.hpp"

namespace torch::comms::transport::tcp {

// Connects one rank to another. It tries the peer's addresses one after the other, each with all
// sockets at the same time, up to four times. If the peer closes the connection instead of
// accepting it, the connector waits before it tries all addresses again.
class TcpConnector final : public Poller::Client {
 public:
  // `keepalive_timeout`: the keepalive timeout of the connected sockets; 0: none.
  TcpConnector(const Endpoint& peer, const TcpHello& hello, Poller& poller,
               std::chrono::milliseconds keepalive_timeout);
  ~TcpConnector() override;

  void on_ready(int socket, uint32_t events) override;

  // Returns: whether the peer has accepted all sockets.
  bool is_done() const noexcept;
  // Returns: the connected sockets, which stay in the poller.
  std::vector<base::FileDescriptor> release_sockets() noexcept;
  // Returns: why the last address failed, once no address is left; empty before.
  const std::string& error_text() const noexcept { return error_text_; }
  // Returns: the error; kResourceExhausted if this process has run out of something.
  Errc error_code() const noexcept { return error_code_; }

 private:
  struct ConnectingSocket {
    base::FileDescriptor socket;
    bool has_sent_hello = false;
    TcpWelcome welcome = {};
    size_t bytes_read = 0;  // bytes of `welcome`
    bool is_welcome() const noexcept { return bytes_read == sizeof welcome; }
  };
  void try_next(std::string why, bool is_rejected = false);
  bool starts_backoff(size_t round);
  void on_socket_ended(int error);
  bool open_all(const base::SocketAddress& address);
  void close() noexcept;
  bool send_hello(ConnectingSocket& socket, unsigned channel);

  Endpoint peer_;
  TcpHello hello_;
  Poller& poller_;
  const std::chrono::milliseconds keepalive_timeout_;
  std::vector<ConnectingSocket> sockets_;
  std::optional<Timer> retry_timer_;
  bool was_rejected_ = false;  // the peer closed a connection in this round
  size_t tries_ = 0;
  std::string address_;  // the current address
  std::string error_text_;
  Errc error_code_ = Errc::kPeerFailed;
};

}  // namespace torch::comms::transport::tcp
