#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/os/handles.hpp"
#include "bootstrap/address_exchange/connector.hpp"
#include "monitor/monitor_protocol.hpp"
#include "transport/tcp/tcp_handshake.hpp"

namespace torch::comms::monitor {

// The connection to one other rank: the smaller rank dials. What is said before it stands is sent
// when it does. Nothing here blocks.
//
// Threads: one at a time. Failure: on_*() say kFailed, for good.
class MonitorConnection {
 public:
  // `contact` is where the other one listens, `hello` what it is told there; `dials`: this side
  // does.
  MonitorConnection(std::string contact, const transport::tcp::TcpHello& hello, bool dials,
                    Moment now);

  enum class State : uint8_t {
    kExpectingPeer,
    kConnecting,
    kBackoff,
    kHandshaking,
    kConnected,
    kFailed
  };
  State state() const noexcept { return state_; }
  // Dials although the other side would. Where it does, too, its connection is the one that stays.
  void connect_now(Moment now);
  // The other side has dialed, and has said who it is.
  void adopt(base::FileDescriptor socket);
  void send(std::string_view text);
  bool has_unsent() const noexcept { return state_ != State::kFailed && !out_.empty(); }

  // What poll() is to look at; -1: nothing.
  int socket() const noexcept;
  short events() const noexcept;
  void on_ready(short events, Moment now);
  // Whether one more has come whole.
  bool receive(std::string& text);
  void on_time(Moment now);
  Moment next_time() const noexcept { return state_ == State::kFailed ? kNever : timer_; }

 private:
  void start_connect(Moment now);
  void on_connect_failed(bool refused, Moment now);
  void warn(const std::string& why);
  void on_rejected(Moment now);
  void on_connecting(Moment now);
  void read();
  void flush();
  void fail() noexcept;

  const std::string contact_;
  const transport::tcp::TcpHello hello_;
  const bool is_initiator_;
  State state_ = State::kExpectingPeer;
  std::unique_ptr<bootstrap::Connector>
      connector_;         // of kConnecting; of kExpectingPeer: whether it still listens
  size_t address_ = 0;    // that is tried first
  size_t addresses_ = 1;  // of the other one
  base::FileDescriptor socket_;
  bool has_warned_ = false;  // that it cannot be reached: once is enough
  int refusals_ = 0;
  size_t rejections_ = 0;  // in a row
  Moment timer_ = kNever;
  std::string out_, in_;
};

}  // namespace torch::comms::monitor
