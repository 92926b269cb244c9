#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "transport/frame.hpp"
#include "transport/offer.hpp"
#include "transport/offer_words.hpp"
#include "transport/request.hpp"

namespace torch::comms::transport {

// Who takes the frames that a channel receives.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Where the payload may be written at once, all frame.bytes of it; empty where it must be kept
  // until it is whole.
  virtual Bytes place(const Frame& frame) noexcept = 0;
  // The frame is whole. `payload` is in the memory that move_to() gave, or in the channel's, where
  // it is valid during the call. Returns false when nothing more is wanted now: the connection is
  // over, or, where the channel fetches, the receiver is to have a moment.
  virtual bool deliver(const Frame& frame, ConstBytes payload) noexcept = 0;
};

// Frames to and from one peer, in order within each lane, whole or not at all. The protocol above
// it is the same for all links; see peer.hpp.
//
// Threads: one. Failure: sending to a broken channel is refused; receive() says why it broke.
class Channel {
 public:
  static constexpr size_t kMaxPieces = Offer::kMostPieces;

  virtual ~Channel() = default;
  // Lane 0 always exists; large transfers spread over the others.
  virtual unsigned lanes() const noexcept { return 1; }
  virtual uint32_t max_payload() const noexcept = 0;

  // True: accepted. `payload`, at most kMaxPieces pieces that make frame.bytes, may be used again
  // if *borrowed did not change; else when it is back to what it was. False: no room now.
  virtual bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                        uint32_t* borrowed) noexcept = 0;

  enum class Received : uint8_t { kNothing, kSome, kBroken };
  // Hands over what is there, with a bound so that other peers get their turn. kBroken once
  // everything that arrived before the end has been handed over.
  virtual Received receive(FrameSink& sink) noexcept = 0;
  // The oldest frame of lane 0 can be looked at without receive(), and try_send() keeps no payload.
  virtual bool shows_front() const noexcept { return false; }
  // That frame and its payload, valid until pop_front(). False: there is none, or something is
  // wrong with it, which receive() tells.
  virtual bool front(Frame&, ConstBytes&) noexcept { return false; }
  virtual void pop_front() noexcept {}
  // Sends on what a full wire held back. True if anything moved.
  virtual bool push() noexcept { return false; }
  // Frames were accepted that need push() to leave.
  virtual bool holds_back() const noexcept { return false; }
  // Why it is broken; empty while it is not.
  virtual const std::string& broken() const noexcept = 0;
  // Of what is broken: kPeerFailed, or what this process or its system failed at.
  virtual Errc code() const noexcept { return Errc::kPeerFailed; }

  // Whether messages are offered to the peer, and copied out of its memory where it offers them;
  // and the words that our offers have then. They outlive the channel.
  virtual bool fetches() const noexcept { return false; }
  virtual std::shared_ptr<OfferWords> offer_words() noexcept { return nullptr; }
  // Copies what follows byte `offset` of an offered message to `into`, at most kMaxPieces pieces.
  // kDone: all of it, and it was still the message. kRefused: the rest must be sent. kGone: it is
  // no message any more, and whoever took it back says why by other means. `past_caches`: as
  // Request::pass_caches().
  enum class Fetched : uint8_t { kDone, kRefused, kGone };
  virtual Fetched fetch(const Offer&, uint64_t, std::span<const Bytes>, bool past_caches) noexcept {
    static_cast<void>(past_caches);
    return Fetched::kRefused;
  }

  // Whether some of the peer's memory is mapped here, and what follows byte `offset` of an offered
  // message there, up to `most` bytes of one of its pieces; empty where that is not mapped. It is
  // the message if fetch() of nothing is kDone after it was read.
  virtual bool maps() const noexcept { return false; }
  virtual ConstBytes view(const Offer&, uint64_t, uint64_t) noexcept { return {}; }

  // Nothing more is written into `range`, which move_to() gave away.
  virtual void withdraw(ConstBytes range) noexcept { static_cast<void>(range); }

  // Everything sent is where a sudden end of this side cannot take it back.
  virtual bool has_arrived() const noexcept { return true; }

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
