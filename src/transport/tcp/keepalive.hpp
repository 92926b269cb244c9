#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "base/net/socket.hpp"
#include "transport/tcp/poller.hpp"
#include "transport/waiting/timer.hpp"

namespace torch::comms::transport::tcp {

// Measures how long a socket's peer has not acknowledged data, from samples that are taken now and
// then.
class Keepalive {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Adds the system's state of the connection at `now`.
  // Returns: the time since the peer's machine began to owe an acknowledgement; 0 if it owes none.
  std::chrono::nanoseconds unanswered_for(const base::TcpAckStatus& status, Time now) noexcept;

 private:
  std::optional<Time> since_;
};

// Checks connections now and then while acknowledgements are pending. While none are pending its
// timer is stopped.
class KeepaliveWatch final : public Poller::Client {
 public:
  class KeepaliveClient {
   public:
    // Fails sockets whose peer has not acknowledged for `limit`.
    // Returns: whether acknowledgements are still pending.
    virtual bool check_keepalive(Keepalive::Time now, std::chrono::milliseconds limit) noexcept = 0;

   protected:
    ~KeepaliveClient() = default;
  };

  // `limit` 0: never checks.
  // Throws: CommError(kResourceExhausted).
  // Lifetime: ends together with `poller`.
  KeepaliveWatch(Poller& poller, std::chrono::milliseconds limit);
  // Configures a socket so that this watch, not the system, fails a silent peer. A system that does
  // not report acknowledgements keeps the check itself.
  void configure(int socket) const noexcept;
  void add(KeepaliveClient& client) { clients_.push_back(&client); }
  void remove(KeepaliveClient& client) noexcept { std::erase(clients_, &client); }
  // Starts the checks; called after every send.
  void on_sent() noexcept {
    if (!is_ticking_ && timer_) set_ticking(true);
  }

  // Returns: whether acknowledgements may be pending.
  bool is_ticking() const noexcept { return is_ticking_; }

  void on_ready(int timer, uint32_t events) override;

 private:
  void set_ticking(bool on) noexcept;

  std::chrono::milliseconds timeout_;
  std::optional<Timer> timer_;
  bool is_ticking_ = false;
  std::vector<KeepaliveClient*> clients_;
};

}  // namespace torch::comms::transport::tcp
