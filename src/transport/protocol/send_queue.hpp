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

// The next pieces of a request, as many as one frame takes.
struct GatheredPieces {
  std::array<ConstBytes, PeerConnection::kMaxPieces> pieces;
  size_t count = 0;
  uint32_t bytes = 0;
  size_t piece = 0, in_piece = 0;  // where the request continues after them
};

// Sends the frames for one peer: it numbers them and keeps requests and control frames for which
// the connection has no room. Control frames go first; their number is bounded by the number of
// operations in flight.
class SendQueue {
 public:
  void attach(PeerConnection* connection) noexcept {
    connection_ = connection;
    read_validity_words_ = connection->read_validity_words();
  }

  // Sends one frame now.
  // Returns: false if the connection has no room; nothing is kept.
  bool try_send(Frame frame, std::span<const ConstBytes> payload, uint32_t* frames_in_use);
  // Sends one control frame with a payload of up to 24 bytes, now or later.
  void post(const Frame& frame, ConstBytes payload = {});
  // Sends waiting control frames.
  // Returns: true if none is left.
  bool send_control(bool& moved);

  // Sends the rest of the request's pieces in frames with this `header`; `at` is added to their
  // offsets.
  // Returns: false if there was no room for all.
  bool stream(Request& request, Frame header, uint64_t at, bool& moved);
  static GatheredPieces gather(std::span<const ConstBytes> pieces, size_t piece, size_t in_piece,
                               uint64_t limit) noexcept;

  // Finishes a request that the connection has accepted as a whole, now or when the connection no
  // longer points into its memory.
  void finish_when_free(Request& request);
  bool finish_freed();  // returns whether any request was finished
  // Ends sends of streams [first, last] with `error`. The connection keeps copies of data that it
  // has begun to send.
  void cancel_sends(uint32_t first, uint32_t last, Errc error);
  // Ends one request that waits for room or for its memory, like cancel_sends().
  void cancel(Request& request, Errc error);
  // These forward to PeerConnection; without a connection there are no remote reads.
  bool supports_remote_read() const noexcept {
    return connection_ != nullptr && connection_->supports_remote_read();
  }
  // Returns: the words of this rank's descriptors; nullptr if the connection has no remote reads.
  ReadValidityWords* read_validity_words() const noexcept { return read_validity_words_.get(); }
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
  // Makes byte `from` the next byte of the request to send.
  static void skip_to(Request& request, uint64_t from) noexcept;
  // Stops writes into `range`, the memory of a receive.
  void cancel_writes(ConstBytes range) noexcept;
  // Ends every request that waits for room or for its memory, and drops all posted control frames.
  void fail(Errc error) noexcept;

  // Requests that can send now, in FIFO order.
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
                    uint32_t* frames_in_use);

  PeerConnection* connection_ = nullptr;
  // Shared: requests still use them after the connection has ended.
  std::shared_ptr<ReadValidityWords> read_validity_words_;
  std::deque<QueuedControlFrame> queued_control_;
  std::vector<Request*> awaiting_memory_;
  std::vector<uint32_t> ordinals_;  // of the next frame, by channel
  unsigned next_channel_ = 0;
};

}  // namespace torch::comms::transport
