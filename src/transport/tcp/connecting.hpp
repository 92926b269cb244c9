#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "base/socket.hpp"
#include "transport/endpoint.hpp"
#include "transport/tcp/handshake.hpp"
#include "transport/tcp/poller.hpp"

namespace torch::comms::transport::tcp {

// One rank's way to a connection with another: tries its addresses one after the other, each with
// all sockets at once.
class Connecting final : public Poller::Client {
 public:
  Connecting(const Endpoint& peer, const Hello& hello, Poller& poller);
  ~Connecting() override;

  void on_ready(int socket, uint32_t events) override;

  // All sockets are welcome.
  bool done() const noexcept;
  // They stay in the poller.
  std::vector<base::FileDescriptor> take() noexcept;
  // No address is left: why not, by the last one. Empty while there is hope.
  const std::string& failed() const noexcept { return failed_; }
  // kResourceExhausted where it is this process that has run out of something.
  Errc code() const noexcept { return code_; }

 private:
  struct Socket {
    base::FileDescriptor socket;
    bool greeted = false;
    size_t welcome = 0;  // bytes of it
  };
  void try_next(std::string why);
  bool open_all(const base::SocketAddress& address);
  void close() noexcept;
  bool greet(Socket& socket, unsigned lane);

  Endpoint peer_;
  Hello hello_;
  Poller& poller_;
  std::vector<Socket> sockets_;
  size_t next_ = 0, tries_ = 0;
  std::string failed_;
  Errc code_ = Errc::kPeerFailed;
};

}  // namespace torch::comms::transport::tcp
