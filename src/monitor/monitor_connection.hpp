#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/os/handles.hpp"
#include "bootstrap/address_exchange/connector.hpp"
#include "monitor/monitor_protocol.hpp"
#include "transport/tcp/tcp_handshake.hpp"

namespace torch::comms::monitor {

// The connection of the monitor network to one peer rank. The smaller rank connects. Messages sent
// before the connection exists are queued. No call blocks.
//
// Throws: nothing for network errors; the state becomes kFailed and stays so.
// Threads: one at a time.
class MonitorConnection {
 public:
  // `contact` is the peer's addresses; `hello` is the handshake sent there. `is_initiator`: this
  // side connects, otherwise it waits for the peer.
  MonitorConnection(std::string contact, const transport::tcp::TcpHello& hello, bool is_initiator,
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
  // Connects although the peer should connect. If the peer connects, too, its connection is the one
  // that is kept.
  void connect_now(Moment now);
  // Takes a connection that the peer has made and whose handshake is valid.
  void adopt(base::FileDescriptor socket);
  void send(std::string_view text);
  bool has_unsent() const noexcept { return state_ != State::kFailed && !out_.empty(); }

  // The socket and events for poll(); -1: none.
  int socket() const noexcept;
  short events() const noexcept;
  void on_ready(short events, Moment now);
  // Takes the next message if it is complete. Returns: whether it was.
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
      connector_;         // in kConnecting: the connect; in kExpectingPeer: the probe
  size_t address_ = 0;    // index of the address to try first
  size_t addresses_ = 1;  // number of the peer's addresses
  base::FileDescriptor socket_;
  bool has_warned_ = false;  // about an unreachable peer, once
  int refusals_ = 0;
  size_t rejections_ = 0;  // consecutive
  Moment timer_ = kNever;
  std::string out_, in_;
};

}  // namespace torch::comms::monitor
