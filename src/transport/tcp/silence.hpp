#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "base/socket.hpp"
#include "transport/tcp/poller.hpp"
#include "transport/timer.hpp"

namespace torch::comms::transport::tcp {

// How long a socket's peer has owed an answer, told by looks at it now and then.
class Silence {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // What the system says of the connection at `now`; the time since its peer's machine has begun
  // to owe an answer, and gave none. 0: it owes none.
  std::chrono::nanoseconds after(const base::TcpAckStatus& answers, Time now) noexcept;

 private:
  std::optional<Time> since_;
};

// Looks at connections now and then while answers are owed; with none owed it wakes nobody.
class SilenceWatch final : public Poller::Client {
 public:
  class Watched {
   public:
    // Gives up what was silent for `limit`. True: answers are owed still.
    virtual bool look(Silence::Time now, std::chrono::milliseconds limit) noexcept = 0;

   protected:
    ~Watched() = default;
  };

  // Ends with `poller`. `limit` 0: never looks. Throws CommError(kResourceExhausted).
  SilenceWatch(Poller& poller, std::chrono::milliseconds limit);
  // Leaves to this watch what the system would do about a silent peer, where it can.
  void tune(int socket) const noexcept;
  void add(Watched& watched) { watched_.push_back(&watched); }
  void remove(Watched& watched) noexcept { std::erase(watched_, &watched); }
  // Somebody has sent something.
  void sent() noexcept {
    if (!ticks_ && timer_) tick(true);
  }

  // Answers are owed, as far as it knows.
  bool ticks() const noexcept { return ticks_; }

  void on_ready(int timer, uint32_t events) override;

 private:
  void tick(bool on) noexcept;

  std::chrono::milliseconds limit_;
  std::optional<Timer> timer_;
  bool ticks_ = false;
  std::vector<Watched*> watched_;
};

}  // namespace torch::comms::transport::tcp
