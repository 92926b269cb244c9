#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "base/socket.hpp"
#include "transport/endpoint.hpp"
#include "transport/tcp/handshake.hpp"
#include "transport/tcp/poller.hpp"
#include "transport/timer.hpp"

namespace torch::comms::transport::tcp {

// One rank's way to a connection with another: tries its addresses one after the other, each with
// all sockets at once, a few times. Where it is turned away it waits before the next time.
class Connecting final : public Poller::Client {
 public:
  // `silence`: of the peer's machine once it is connected; 0: any.
  Connecting(const Endpoint& peer, const Hello& hello, Poller& poller,
             std::chrono::milliseconds silence);
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
    Welcome welcome = {};
    size_t have = 0;  // bytes of it
    bool is_welcome() const noexcept { return have == sizeof welcome; }
  };
  void try_next(std::string why, bool turned_away = false);
  bool rests(size_t round);
  void ended(int error);
  bool open_all(const base::SocketAddress& address);
  void close() noexcept;
  bool greet(Socket& socket, unsigned lane);

  Endpoint peer_;
  Hello hello_;
  Poller& poller_;
  const std::chrono::milliseconds silence_;
  std::vector<Socket> sockets_;
  std::optional<Timer> pause_;
  bool turned_away_ = false;  // by an address of this round
  size_t tries_ = 0;
  std::string address_;  // that is tried
  std::string failed_;
  Errc code_ = Errc::kPeerFailed;
};

}  // namespace torch::comms::transport::tcp
