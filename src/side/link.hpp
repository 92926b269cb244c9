#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/handles.hpp"
#include "bootstrap/exchange/connector.hpp"
#include "side/member.hpp"
#include "transport/tcp/tcp_handshake.hpp"

namespace torch::comms::side {

// The connection to one other rank: the smaller rank dials. What is said before it stands is sent
// when it does. Nothing here blocks.
//
// Threads: one at a time. Failure: on_*() say kFailed, for good.
class Link {
 public:
  // `contact` is where the other one listens, `hello` what it is told there; `dials`: this side
  // does.
  Link(std::string contact, const transport::tcp::TcpHello& hello, bool dials, Moment now);

  enum class State : uint8_t { kAwaited, kDialing, kResting, kGreeting, kUp, kLost };
  State state() const noexcept { return state_; }
  // Dials although the other side would. Where it does, too, its connection is the one that stays.
  void call(Moment now);
  // The other side has dialed, and has said who it is.
  void take(base::FileDescriptor socket);
  void say(std::string_view text);
  bool unsent() const noexcept { return state_ != State::kLost && !out_.empty(); }

  // What poll() is to look at; -1: nothing.
  int socket() const noexcept;
  short events() const noexcept;
  void on_ready(short events, Moment now);
  // Whether one more has come whole.
  bool next(std::string& text);
  void on_time(Moment now);
  Moment next_time() const noexcept { return state_ == State::kLost ? kNever : timer_; }

 private:
  void dial(Moment now);
  void not_reached(bool refused, Moment now);
  void warn(const std::string& why);
  void turned_away(Moment now);
  void on_dialing(Moment now);
  void read();
  void flush();
  void lose() noexcept;

  const std::string contact_;
  const transport::tcp::TcpHello hello_;
  const bool dials_;
  State state_ = State::kAwaited;
  std::unique_ptr<bootstrap::Connector>
      dial_;              // of kDialing; of kAwaited: whether it still listens
  size_t address_ = 0;    // that is tried first
  size_t addresses_ = 1;  // of the other one
  base::FileDescriptor socket_;
  bool warned_ = false;  // that it cannot be reached: once is enough
  int refusals_ = 0;
  size_t turns_away_ = 0;  // in a row
  Moment timer_ = kNever;
  std::string out_, in_;
};

}  // namespace torch::comms::side
