#pragma once

#include <memory>
#include <optional>
#include <string>

#include "transport/channel.hpp"
#include "transport/messages.hpp"
#include "transport/one_sided.hpp"
#include "transport/outbox.hpp"
#include "transport/transport.hpp"

namespace torch::comms::transport {

// One peer of a link: its channel and the protocol over it, which is the same for all links.
// Operations may be given to it before it has a channel; a failed peer takes none.
class Peer final : public FrameSink {
 public:
  Peer(int rank, const Regions& regions, const MessageLimits& limits, const ClosedStreams& closed)
      : messages(out_, regions, limits, closed), one_sided(out_, regions), rank_(rank) {}

  int rank() const noexcept { return rank_; }
  PeerState state() const noexcept;
  const PeerFailure* failure() const noexcept { return failure_ ? &*failure_ : nullptr; }
  Channel* channel() noexcept { return channel_.get(); }

  void open(std::unique_ptr<Channel> channel);
  bool progress() noexcept;
  // In front is what try_receive() would take for this stream.
  bool shows_next(uint32_t stream) noexcept;
  // Sends what can be sent of what was just asked for.
  bool pump();
  // As Transport's of these names.
  uint64_t at_once_bytes() const noexcept {
    return channel_ && channel_->shows_front() ? messages.at_once_bytes() : 0;
  }
  bool try_receive(uint32_t stream, const Landing& landing, uint32_t tag);
  // Ends everything in flight with `code`. The first failure counts.
  void fail(Errc code, const std::string& why) noexcept;
  // Nothing reads or writes `range` any more when this returns.
  void withdraw(ConstBytes range);
  bool prepare_sleep() noexcept;
  // Something was asked for and has not left, for want of a channel, room or credit.
  bool waiting() const noexcept { return out_.waiting(); }
  bool unsent() const noexcept {
    return out_.holds_back() || (channel_ && channel_->holds_back() && channel_->broken().empty());
  }

  Bytes place(const Frame& frame) noexcept override;
  bool deliver(const Frame& frame, ConstBytes payload) noexcept override;

 private:
  Outbox out_;

 public:
  Messages messages;
  OneSided one_sided;

 private:
  const char* accept(const Frame& frame, ConstBytes payload);

  int rank_;
  std::unique_ptr<Channel> channel_;
  std::vector<uint32_t> ordinals_;  // of the next frame, by lane
  std::string violation_;           // of the protocol, by the peer
  std::optional<PeerFailure> failure_;
};

}  // namespace torch::comms::transport
