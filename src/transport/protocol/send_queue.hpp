#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "transport/connect/peer_connection.hpp"
#include "transport/protocol/frame.hpp"
#include "transport/protocol/request.hpp"

namespace torch::comms::transport {

// A request's way along its pieces: the next ones, as far as one frame takes them.
struct GatheredPieces {
  std::array<ConstBytes, PeerConnection::kMaxPieces> pieces;
  size_t count = 0;
  uint32_t bytes = 0;
  size_t piece = 0, in_piece = 0;  // where it goes on after them
};

// What leaves for one peer: numbers the frames, keeps what the channel has no room for. Control
// frames go first; their number is bounded by that of the operations in flight.
class SendQueue {
 public:
  void attach(PeerConnection* channel) noexcept {
    connection_ = channel;
    read_validity_words_ = channel->read_validity_words();
  }

  // One frame now, or not at all.
  bool try_send(Frame frame, std::span<const ConstBytes> payload, uint32_t* borrowed);
  // One control frame with a payload of up to 24 bytes, now or later.
  void post(const Frame& frame, ConstBytes payload = {});
  // Sends the control frames that wait; true if none is left.
  bool send_control(bool& moved);

  // Sends what is left of the request's pieces, in frames like `head`. False: no room for the rest.
  bool stream(Request& request, Frame head, uint64_t at, bool& moved);
  static GatheredPieces gather(std::span<const ConstBytes> pieces, size_t piece, size_t in_piece,
                               uint64_t limit) noexcept;

  // All of the request has been accepted: it is done when the channel has given back its memory.
  void finish_when_free(Request& request);
  bool finish_freed();  // true if any was
  // Messages of streams [first, last]; the channel keeps copies of what it has begun to send.
  void cancel_sends(uint32_t first, uint32_t last, Errc error);
  // One request that waits for room or for its memory, in the same way.
  void cancel(Request& request, Errc error);
  // As PeerConnection's; a channel that is not there yet fetches nothing.
  bool supports_remote_read() const noexcept {
    return connection_ != nullptr && connection_->supports_remote_read();
  }
  ReadValidityWords* read_validity_words() const noexcept {
    return read_validity_words_.get();
  }  // where it fetches
  PeerConnection::RemoteReadStatus remote_read(const RemoteReadDescriptor& offer, uint64_t offset,
                                               std::span<const Bytes> into,
                                               bool past_caches = false) noexcept {
    return connection_->remote_read(offer, offset, into, past_caches);
  }
  bool maps_peer_memory() const noexcept {
    return connection_ != nullptr && connection_->maps_peer_memory();
  }
  ConstBytes map_view(const RemoteReadDescriptor& offer, uint64_t offset, uint64_t most) noexcept {
    return connection_->map_view(offer, offset, most);
  }
  // The request's pieces from byte `from` on are what is left to send.
  static void skip_to(Request& request, uint64_t from) noexcept;
  // Nothing more is written into `range`, where a message was to go.
  void cancel_writes(ConstBytes range) noexcept;
  // Every request that waits for room or for its memory, and all that is posted, ends here.
  void fail(Errc error) noexcept;

  // Requests that can send now, first come first served.
  std::deque<Request*> ready;
  bool has_queued_control() const noexcept { return !queued_control_.empty(); }
  bool has_waiting() const noexcept { return !ready.empty() || !queued_control_.empty(); }

 private:
  struct QueuedControlFrame {
    Frame frame;
    std::array<std::byte, 24> payload;
  };
  void reclaim(Request& request);
  bool try_channels(const Frame& frame, std::span<const ConstBytes> payload, bool large,
                    uint32_t* borrowed);

  PeerConnection* connection_ = nullptr;
  std::shared_ptr<ReadValidityWords>
      read_validity_words_;  // requests have them when the channel has gone
  std::deque<QueuedControlFrame> queued_control_;
  std::vector<Request*> awaiting_memory_;
  std::vector<uint32_t> ordinals_;  // of the next frame, by lane
  unsigned next_channel_ = 0;
};

}  // namespace torch::comms::transport
