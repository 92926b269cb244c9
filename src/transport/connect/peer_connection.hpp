#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/protocol/frame.hpp"
#include "transport/protocol/read_validity_words.hpp"
#include "transport/protocol/remote_read.hpp"
#include "transport/protocol/request.hpp"

namespace torch::comms::transport {

// Receives the frames of a connection.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Returns: memory of frame.bytes bytes for the payload; empty if the connection must keep the
  // payload until it is whole.
  // Lifetime: the memory must stay valid until deliver() of this frame, cancel_writes() of the
  // memory, or the end of the connection.
  virtual Bytes payload_target(const Frame& frame) noexcept = 0;
  // Takes a whole frame. `payload` is in the memory of payload_target(), or in the connection's
  // memory, where it is valid during the call.
  // Returns: false if the connection must stop receiving for now: the connection has failed, or the
  // receiver needs a chance to post its next receive.
  virtual bool deliver(const Frame& frame, ConstBytes payload) noexcept = 0;
};

// Moves frames to and from one peer, in order within each channel, whole or not at all. The
// protocol above it is the same for all transports: protocol/peer_protocol.hpp.
//
// Failures: try_send() on a broken connection returns false; receive() reports that the connection
// is broken.
// Threads: any, but one at a time.
class PeerConnection {
 public:
  static constexpr size_t kMaxPieces = RemoteReadDescriptor::kMaxSegments;

  virtual ~PeerConnection() = default;
  // Returns: the number of channels. Channel 0 always exists; large transfers spread over the
  // others.
  virtual unsigned channels() const noexcept { return 1; }
  virtual uint32_t max_payload() const noexcept = 0;  // payload bytes of a frame

  // Sends a frame with a payload of at most kMaxPieces pieces that make frame.bytes. If
  // *frames_in_use does not change, `payload` may be used again when this returns. Otherwise the
  // connection has incremented *frames_in_use, and keeps pointers to the payload until it
  // decrements *frames_in_use.
  // Returns: false if there is no room now, or if the connection is broken.
  // Lifetime: `frames_in_use` and a payload in use must stay valid until then, or until the end of
  // the connection.
  virtual bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                        uint32_t* frames_in_use) noexcept = 0;

  enum class ReceiveStatus : uint8_t { kNothing, kSome, kBroken };
  // Delivers received frames to `sink`, at most a bounded amount, so that other peers get their
  // turn.
  // Returns: kBroken once everything that arrived before the end has been delivered.
  virtual ReceiveStatus receive(FrameSink& sink) noexcept = 0;
  // Returns: whether peek() works. Then try_send() never keeps a payload.
  virtual bool can_peek() const noexcept { return false; }
  // Reads the oldest frame of channel 0 and its payload, which are valid until pop().
  // Returns: false if there is no frame, or if it is corrupted, which receive() reports.
  virtual bool peek(Frame&, ConstBytes&) noexcept { return false; }
  virtual void pop() noexcept {}
  // Sends data that had no room before.
  // Returns: whether anything moved.
  virtual bool flush() noexcept { return false; }
  // Returns: whether accepted frames need flush() to leave.
  virtual bool has_unflushed() const noexcept { return false; }
  // Returns: why the connection is broken; empty while it works.
  virtual const std::string& error_text() const noexcept = 0;
  // Returns: the error of a broken connection: kPeerFailed, or the error of this process or its
  // system.
  virtual Errc error_code() const noexcept { return Errc::kPeerFailed; }

  // supports_remote_read() returns whether messages are announced with a RemoteReadDescriptor and
  // copied out of the peer's memory. read_validity_words() returns the words of this rank's
  // descriptors; they outlive the connection.
  virtual bool supports_remote_read() const noexcept { return false; }
  virtual std::shared_ptr<ReadValidityWords> read_validity_words() noexcept { return nullptr; }
  // Copies the message from byte `offset` on to at most kMaxPieces pieces. `past_caches`: see
  // Request::set_non_temporal().
  // Returns: kDone if all was copied and was still the message; kRefused if the sender must send
  // the rest; kWithdrawn if the memory is no longer the message. The sender says by other frames
  // why it was withdrawn.
  enum class RemoteReadStatus : uint8_t { kDone, kRefused, kWithdrawn };
  virtual RemoteReadStatus remote_read(const RemoteReadDescriptor&, uint64_t,
                                       std::span<const Bytes>, bool past_caches) noexcept {
    static_cast<void>(past_caches);
    return RemoteReadStatus::kRefused;
  }

  // maps_peer_memory() returns whether some of the peer's memory is mapped here. map_view() returns
  // the mapped message from byte `offset` on, up to `most` bytes of one of its pieces; empty if it
  // is not mapped. The view was the message if remote_read() of no bytes returns kDone after the
  // view was read.
  virtual bool maps_peer_memory() const noexcept { return false; }
  virtual ConstBytes map_view(const RemoteReadDescriptor&, uint64_t, uint64_t) noexcept {
    return {};
  }

  // Stops all use of `range`. The rest of a payload that is being received into it is dropped.
  // Payloads that try_send() still uses are copied, and their *frames_in_use is decremented.
  virtual void cancel_writes(ConstBytes range) noexcept { static_cast<void>(range); }

  // Returns: whether everything that was sent will arrive even if this process ends now.
  virtual bool is_delivered() const noexcept { return true; }

  // Announces a sleep: from now on the peer wakes this rank. `wants_room`: room for frames counts
  // as something to do. The caller calls finish_sleep() afterwards, whatever this returned.
  // Returns: false if there is something to do.
  virtual bool prepare_sleep(bool wants_room) noexcept {
    static_cast<void>(wants_room);
    return true;
  }
  virtual void finish_sleep() noexcept {}
  // Wakes the peer if it sleeps, because memory that it polls has changed.
  virtual void wake_peer() noexcept {}
};

}  // namespace torch::comms::transport
