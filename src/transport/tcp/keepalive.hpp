#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "base/net/socket.hpp"
#include "transport/tcp/poller.hpp"
#include "transport/waiting/timer.hpp"

namespace torch::comms::transport::tcp {

// How long a socket's peer has owed an answer, told by looks at it now and then.
class Keepalive {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // What the system says of the connection at `now`; the time since its peer's machine has begun
  // to owe an answer, and gave none. 0: it owes none.
  std::chrono::nanoseconds unanswered_for(const base::TcpAckStatus& answers, Time now) noexcept;

 private:
  std::optional<Time> since_;
};

// Looks at connections now and then while answers are owed; with none owed it wakes nobody.
class KeepaliveWatch final : public Poller::Client {
 public:
  class KeepaliveClient {
   public:
    // Gives up what was silent for `limit`. True: answers are owed still.
    virtual bool check_keepalive(Keepalive::Time now, std::chrono::milliseconds limit) noexcept = 0;

   protected:
    ~KeepaliveClient() = default;
  };

  // Ends with `poller`. `limit` 0: never looks. Throws CommError(kResourceExhausted).
  KeepaliveWatch(Poller& poller, std::chrono::milliseconds limit);
  // Leaves to this watch what the system would do about a silent peer, where it can.
  void configure(int socket) const noexcept;
  void add(KeepaliveClient& watched) { clients_.push_back(&watched); }
  void remove(KeepaliveClient& watched) noexcept { std::erase(clients_, &watched); }
  // Somebody has sent something.
  void on_sent() noexcept {
    if (!is_ticking_ && timer_) set_ticking(true);
  }

  // Answers are owed, as far as it knows.
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
