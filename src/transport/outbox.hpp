#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "transport/channel.hpp"
#include "transport/frame.hpp"
#include "transport/request.hpp"

namespace torch::comms::transport {

// A request's way along its pieces: the next ones, as far as one frame takes them.
struct Gathered {
  std::array<ConstBytes, Channel::kMaxPieces> pieces;
  size_t count = 0;
  uint32_t bytes = 0;
  size_t piece = 0, in_piece = 0;  // where it goes on after them
};

// What leaves for one peer: numbers the frames, keeps what the channel has no room for. Control
// frames go first; their number is bounded by that of the operations in flight.
class Outbox {
 public:
  void attach(Channel* channel) noexcept {
    channel_ = channel;
    offer_words_ = channel->offer_words();
  }

  // One frame now, or not at all.
  bool try_send(Frame frame, std::span<const ConstBytes> payload, uint32_t* borrowed);
  // One control frame with a payload of up to 24 bytes, now or later.
  void post(const Frame& frame, ConstBytes payload = {});
  // Sends the control frames that wait; true if none is left.
  bool send_posted(bool& moved);

  // Sends what is left of the request's pieces, in frames like `head`. False: no room for the rest.
  bool stream(Request& request, Frame head, uint64_t at, bool& moved);
  static Gathered gather(std::span<const ConstBytes> pieces, size_t piece, size_t in_piece,
                         uint64_t limit) noexcept;

  // All of the request has been accepted: it is done when the channel has given back its memory.
  void finish_when_free(Request& request);
  bool finish_freed();  // true if any was
  // Messages of streams [first, last]; the channel keeps copies of what it has begun to send.
  void end_sends(uint32_t first, uint32_t last, Errc error);
  // One request that waits for room or for its memory, in the same way.
  void end(Request& request, Errc error);
  // As Channel's; a channel that is not there yet fetches nothing.
  bool fetches() const noexcept { return channel_ != nullptr && channel_->fetches(); }
  OfferWords* offer_words() const noexcept { return offer_words_.get(); }  // where it fetches
  Channel::Fetched fetch(const Offer& offer, uint64_t offset, std::span<const Bytes> into,
                         bool past_caches = false) noexcept {
    return channel_->fetch(offer, offset, into, past_caches);
  }
  bool maps() const noexcept { return channel_ != nullptr && channel_->maps(); }
  ConstBytes view(const Offer& offer, uint64_t offset, uint64_t most) noexcept {
    return channel_->view(offer, offset, most);
  }
  // The request's pieces from byte `from` on are what is left to send.
  static void skip(Request& request, uint64_t from) noexcept;
  // Nothing more is written into `range`, where a message was to go.
  void withdraw(ConstBytes range) noexcept;
  // Every request that waits for room or for its memory, and all that is posted, ends here.
  void fail(Errc error) noexcept;

  // Requests that can send now, first come first served.
  std::deque<Request*> ready;
  bool holds_back() const noexcept { return !posted_.empty(); }
  bool waiting() const noexcept { return !ready.empty() || !posted_.empty(); }

 private:
  struct Posted {
    Frame frame;
    std::array<std::byte, 24> payload;
  };
  void take_back(Request& request);
  bool try_lanes(const Frame& frame, std::span<const ConstBytes> payload, bool large,
                 uint32_t* borrowed);

  Channel* channel_ = nullptr;
  std::shared_ptr<OfferWords> offer_words_;  // requests have them when the channel has gone
  std::deque<Posted> posted_;
  std::vector<Request*> borrowed_;
  std::vector<uint32_t> ordinals_;  // of the next frame, by lane
  unsigned next_lane_ = 0;
};

}  // namespace torch::comms::transport
