#pragma once

#include <memory>
#include <optional>
#include <string>

#include "transport/connect/peer_connection.hpp"
#include "transport/protocol/message_protocol.hpp"
#include "transport/protocol/one_sided_protocol.hpp"
#include "transport/protocol/send_queue.hpp"
#include "transport/transport.hpp"

namespace torch::comms::transport {

// One peer of a transport: its connection and the protocol over it, which is the same for all
// transports. Operations may be posted before the connection exists; a failed peer takes none.
class PeerProtocol final : public FrameSink {
 public:
  PeerProtocol(int rank, const RegionTable& regions, const MessageProtocolOptions& options,
               const ClosedStreams& closed)
      : messages(send_queue_, regions, options, closed),
        one_sided(send_queue_, regions),
        rank_(rank) {}

  int rank() const noexcept { return rank_; }
  PeerState state() const noexcept;
  const PeerFailure* failure() const noexcept { return failure_ ? &*failure_ : nullptr; }
  PeerConnection* connection() noexcept { return connection_.get(); }

  void open(std::unique_ptr<PeerConnection> peer_connection);
  bool progress() noexcept;
  // Returns: whether the oldest frame is the next message of `stream`, which try_receive() may
  // take.
  bool is_next_in_front(uint32_t stream) noexcept;
  // Sends waiting control frames and requests as far as the connection takes them.
  // Returns: whether anything moved.
  bool send_ready();
  // These implement the functions of Transport with the same names.
  uint64_t inline_eager_bytes() const noexcept {
    return connection_ && connection_->can_peek() ? messages.inline_eager_bytes() : 0;
  }
  bool try_receive(uint32_t stream, const ReceiveTarget& target, uint32_t tag);
  // Ends everything in flight with `code`. Only the first failure is recorded.
  void fail(Errc code, const std::string& why) noexcept;
  // Stops all access to `range`: nothing reads or writes it when this returns.
  void cancel_access(ConstBytes range);
  bool prepare_sleep() noexcept;
  // Returns: whether something waits for a connection, room or credit.
  bool has_waiting() const noexcept { return send_queue_.has_waiting(); }
  bool has_unsent() const noexcept {
    return send_queue_.has_queued_control() ||
           (connection_ && connection_->has_unflushed() && connection_->error_text().empty());
  }

  Bytes payload_target(const Frame& frame) noexcept override;
  bool deliver(const Frame& frame, ConstBytes payload) noexcept override;

 private:
  SendQueue send_queue_;

 public:
  MessageProtocol messages;
  OneSidedProtocol one_sided;

 private:
  const char* dispatch(const Frame& frame, ConstBytes payload);

  int rank_;
  std::unique_ptr<PeerConnection> connection_;
  std::vector<uint32_t> ordinals_;  // of the next frame, by channel
  std::string violation_;           // what the peer did wrong; empty: nothing
  bool is_out_of_memory_ = false;   // this rank had no memory for a frame of the peer
  std::optional<PeerFailure> failure_;
};

}  // namespace torch::comms::transport
