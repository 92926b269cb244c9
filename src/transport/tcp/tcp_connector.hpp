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

// One rank's way to a connection with another: tries its addresses one after the other, each with
// all sockets at once, a few times. Where it is turned away it waits before the next time.
class TcpConnector final : public Poller::Client {
 public:
  // `silence`: of the peer's machine once it is connected; 0: any.
  TcpConnector(const Endpoint& peer, const TcpHello& hello, Poller& poller,
               std::chrono::milliseconds silence);
  ~TcpConnector() override;

  void on_ready(int socket, uint32_t events) override;

  // All sockets are welcome.
  bool is_done() const noexcept;
  // They stay in the poller.
  std::vector<base::FileDescriptor> release_sockets() noexcept;
  // No address is left: why not, by the last one. Empty while there is hope.
  const std::string& error_text() const noexcept { return error_text_; }
  // kResourceExhausted where it is this process that has run out of something.
  Errc error_code() const noexcept { return error_code_; }

 private:
  struct ConnectingSocket {
    base::FileDescriptor socket;
    bool has_sent_hello = false;
    TcpWelcome welcome = {};
    size_t bytes_read = 0;  // bytes of it
    bool is_welcome() const noexcept { return bytes_read == sizeof welcome; }
  };
  void try_next(std::string why, bool turned_away = false);
  bool starts_backoff(size_t round);
  void on_socket_ended(int error);
  bool open_all(const base::SocketAddress& address);
  void close() noexcept;
  bool send_hello(ConnectingSocket& socket, unsigned lane);

  Endpoint peer_;
  TcpHello hello_;
  Poller& poller_;
  const std::chrono::milliseconds keepalive_timeout_;
  std::vector<ConnectingSocket> sockets_;
  std::optional<Timer> retry_timer_;
  bool was_rejected_ = false;  // by an address of this round
  size_t tries_ = 0;
  std::string address_;  // that is tried
  std::string error_text_;
  Errc error_code_ = Errc::kPeerFailed;
};

}  // namespace torch::comms::transport::tcp
