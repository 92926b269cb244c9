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

// Who takes the frames that a channel receives.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Where the payload may be written at once, all frame.bytes of it; empty where it must be kept
  // until it is whole.
  virtual Bytes payload_target(const Frame& frame) noexcept = 0;
  // The frame is whole. `payload` is in the memory that payload_target() gave, or in the channel's,
  // where it is valid during the call. Returns false when nothing more is wanted now: the
  // connection is over, or, where the channel fetches, the receiver is to have a moment.
  virtual bool deliver(const Frame& frame, ConstBytes payload) noexcept = 0;
};

// Frames to and from one peer, in order within each lane, whole or not at all. The protocol above
// it is the same for all links; see peer.hpp.
//
// Threads: one. Failure: sending to a broken channel is refused; receive() says why it broke.
class PeerConnection {
 public:
  static constexpr size_t kMaxPieces = RemoteReadDescriptor::kMaxSegments;

  virtual ~PeerConnection() = default;
  // Lane 0 always exists; large transfers spread over the others.
  virtual unsigned channels() const noexcept { return 1; }
  virtual uint32_t max_payload() const noexcept = 0;

  // True: accepted. `payload`, at most kMaxPieces pieces that make frame.bytes, may be used again
  // if *borrowed did not change; else when it is back to what it was. False: no room now.
  virtual bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                        uint32_t* borrowed) noexcept = 0;

  enum class ReceiveStatus : uint8_t { kNothing, kSome, kBroken };
  // Hands over what is there, with a bound so that other peers get their turn. kBroken once
  // everything that arrived before the end has been handed over.
  virtual ReceiveStatus receive(FrameSink& sink) noexcept = 0;
  // The oldest frame of lane 0 can be looked at without receive(), and try_send() keeps no payload.
  virtual bool can_peek() const noexcept { return false; }
  // That frame and its payload, valid until pop(). False: there is none, or something is
  // wrong with it, which receive() tells.
  virtual bool peek(Frame&, ConstBytes&) noexcept { return false; }
  virtual void pop() noexcept {}
  // Sends on what a full wire held back. True if anything moved.
  virtual bool flush() noexcept { return false; }
  // Frames were accepted that need flush() to leave.
  virtual bool has_unflushed() const noexcept { return false; }
  // Why it is broken; empty while it is not.
  virtual const std::string& error_text() const noexcept = 0;
  // Of what is broken: kPeerFailed, or what this process or its system failed at.
  virtual Errc error_code() const noexcept { return Errc::kPeerFailed; }

  // Whether messages are offered to the peer, and copied out of its memory where it offers them;
  // and the words that our offers have then. They outlive the channel.
  virtual bool supports_remote_read() const noexcept { return false; }
  virtual std::shared_ptr<ReadValidityWords> read_validity_words() noexcept { return nullptr; }
  // Copies what follows byte `offset` of an offered message to `into`, at most kMaxPieces pieces.
  // kNoFinish: all of it, and it was still the message. kRefused: the rest must be sent.
  // kWithdrawn: it is no message any more, and whoever took it back says why by other means.
  // `past_caches`: as Request::set_non_temporal().
  enum class RemoteReadStatus : uint8_t { kDone, kRefused, kWithdrawn };
  virtual RemoteReadStatus remote_read(const RemoteReadDescriptor&, uint64_t,
                                       std::span<const Bytes>, bool past_caches) noexcept {
    static_cast<void>(past_caches);
    return RemoteReadStatus::kRefused;
  }

  // Whether some of the peer's memory is mapped here, and what follows byte `offset` of an offered
  // message there, up to `most` bytes of one of its pieces; empty where that is not mapped. It is
  // the message if fetch() of nothing is kNoFinish after it was read.
  virtual bool maps_peer_memory() const noexcept { return false; }
  virtual ConstBytes map_view(const RemoteReadDescriptor&, uint64_t, uint64_t) noexcept {
    return {};
  }

  // Nothing more is written into `range`, which payload_target() gave away.
  virtual void cancel_writes(ConstBytes range) noexcept { static_cast<void>(range); }

  // Everything sent is where a sudden end of this side cannot take it back.
  virtual bool is_delivered() const noexcept { return true; }

  // Before the owner sleeps: from now on the peer wakes it up. False: there is something to do.
  virtual bool prepare_sleep(bool wants_room) noexcept {
    static_cast<void>(wants_room);
    return true;
  }
  virtual void finish_sleep() noexcept {}
  // The peer may be asleep, and something changed in memory that it looks at.
  virtual void wake_peer() noexcept {}
};

}  // namespace torch::comms::transport
