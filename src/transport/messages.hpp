#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/secret.hpp"
#include "transport/at_once_choice.hpp"
#include "transport/closed_streams.hpp"
#include "transport/copy_choice.hpp"
#include "transport/outbox.hpp"
#include "transport/regions.hpp"
#include "transport/request.hpp"
#include "transport/slots.hpp"

namespace torch::comms::transport {

struct MessageLimits {
  uint64_t eager_bytes = 0;    // larger messages wait for their receive
  uint64_t at_once_bytes = 0;  // the same, of those without a request; and where that is faster
  uint64_t eager_credit = 0;  // bytes of messages without one, kept by the receiver; equal on ranks
  bool takes_turns = false;   // ranks share cores: who waits for an answer waits for a turn, too
  bool leads = false;         // where messages go both ways: says how both move
  uint32_t copies_from = 0;   // where in large messages of peers' memory a copy begins, of 65,536
};

// Two-sided messages with one peer, matched by (stream, number in the stream), and then compared by
// their tags.
//
// A small message is one kEager frame, as long as the receiver's credit lasts, and one that is not
// much larger if that takes less time. Any other announces its length with kStart and moves in
// kData frames once kGrant says that its receive is there; a receive for a large message grants at
// once, so the grant is usually there before the send. The frames of all streams share a channel
// without blocking each other: whatever is sent has memory waiting for it.
//
// Where the channel fetches, kStart carries an Offer, nothing is granted before it comes, and the
// receiver copies the message itself and answers kTaken; or kGrant, for as much as it could not, or
// if both ends copy it in less time; which, where ranks take turns, it says before the offer comes.
// Where messages of one size go both ways at the same time, one side decides that for both, and
// measures it, for what one costs depends on what becomes of the other.
// Receives with a consumer grant as everywhere, unless memory of the peer is mapped: then they,
// too, wait for what is offered, and read it where it lies.
//
// Every on_...() takes a frame that came; it returns nullptr, or why the peer cannot have meant it.
class Messages {
 public:
  Messages(Outbox& out, const Regions& regions, const MessageLimits& limits,
           const ClosedStreams& closed)
      : out_(out),
        regions_(regions),
        limits_(limits),
        closed_(closed),
        at_once_(limits.takes_turns),
        one_way_(first_class(limits), limits.takes_turns ? 0 : kMostFetched),
        both_ways_(first_class(limits)) {}

  uint64_t at_once_bytes() const noexcept { return limits_.at_once_bytes; }
  // After a message that is not small, others wait: its receiver may have a receive for the next
  // one in a moment, which is then not kept for it, but goes where it belongs.
  bool ends_turn(const Frame& frame) const noexcept {
    return frame.kind == FrameKind::kEager && frame.bytes > limits_.eager_bytes && out_.fetches();
  }
  void send(Request& request);
  void receive(Request& request);
  // As Transport::try_send().
  bool try_send(uint32_t stream, ConstBytes bytes, uint32_t tag);
  // The next message of the stream has been kept, whole, with this size and tag: takes it.
  bool take_kept(uint32_t stream, const Landing& landing, uint32_t tag);
  // The next receive of the stream would take this frame, and no message was kept for it.
  bool is_next(const Frame& frame);
  // That frame has been taken in place of a receive.
  void took(const Frame& frame);
  // Whether all of the next message of the stream has come before its receive. It may be received
  // after fail(), too: its sender may have ended because it was done.
  bool is_here(uint32_t stream) const noexcept;
  // As Transport::has_message().
  bool is_known(uint32_t stream) const noexcept { return next_early(stream) != nullptr; }
  // Goes on with a send of Outbox::ready; true if that may forget it.
  bool push(Request& request, bool& moved);
  // Copies some of what the peer has offered; true if there was anything.
  bool fetch();
  bool fetching() const noexcept { return !fetches_.empty(); }
  void fail(Errc error) noexcept;
  // Ends a request that is not done, and that has no partner: see Transport::destroy_handle().
  void end(Request& request, Errc error);
  // As Transport::close_streams(); the range has been added to `closed`.
  void close(uint32_t first, uint32_t last, Errc error);

  const char* on_eager(const Frame& frame, ConstBytes payload);
  const char* on_start(const Frame& frame, ConstBytes payload);
  const char* on_grant(const Frame& frame, ConstBytes payload);
  const char* on_taken(const Frame& frame);
  const char* on_refuse(const Frame& frame);
  Bytes place_data(const Frame& frame);
  const char* on_data(const Frame& frame, ConstBytes payload);
  const char* on_credit(const Frame& frame);

 private:
  using Clock = std::chrono::steady_clock;
  struct Early {  // came before its receive
    uint64_t length = 0;
    uint32_t tag = 0;
    bool whole = false;           // an eager message; else an announced one
    std::vector<std::byte> data;  // of that its Offer, if it has one
  };
  using EarlyNode = std::unordered_map<uint32_t, Early>::node_type;
  using EarlyPlace = std::unordered_map<uint32_t, Early>::const_iterator;
  // Of the copies of a receive that is timed.
  class Stopwatch {
   public:
    explicit Stopwatch(Request& receive) noexcept
        : receive_(receive),
          begin_(is_timed(receive.began_) ? Clock::now() : Clock::time_point{}) {}
    void stop() const noexcept {
      if (is_timed(begin_)) receive_.copied_ += Clock::now() - begin_;
    }

   private:
    Request& receive_;
    Clock::time_point begin_;
  };
  struct Grant {
    uint64_t capacity = 0;
    uint32_t tag = 0;
  };
  struct Fetch {
    Request* request = nullptr;
    Offer offer = {};
    bool begun = false;
    bool views = false;  // it is read where it lies
  };
  struct Sends {
    uint32_t next = 0;
    std::unordered_map<uint32_t, Request*> open;
    std::unordered_map<uint32_t, Grant> grants;  // of receives before their sends
  };
  struct Receives {
    uint32_t next = 0, first = 0;  // numbers of the next receive and of posted.front()
    Slots<Request*> posted;        // nullptr: done before an earlier one
    std::unordered_map<uint32_t, Early> early;

    Request* find(uint32_t number) const noexcept;
    bool comes_later(uint32_t number) const noexcept { return int32_t(number - next) >= 0; }
    void remove(uint32_t number) noexcept;
  };

  const Early* next_early(uint32_t stream) const noexcept;
  static uint64_t cost(uint64_t bytes) noexcept { return bytes + 64; }
  bool has_credit(uint64_t bytes, uint64_t most, size_t pieces) const noexcept;
  static Frame frame_of(FrameKind kind, const Request& request) noexcept;
  static bool is_granted(const Sends& out, uint64_t bytes, uint32_t tag);
  bool try_eager(Request& request);
  bool try_timed(Request& request);
  static bool is_timed(Clock::time_point began) noexcept { return began != Clock::time_point{}; }
  bool push_eager(Frame frame, uint64_t size, std::span<const ConstBytes> pieces,
                  uint32_t* borrowed);
  bool announce(Request& request);
  bool offer(Request& request, Offer& offer) noexcept;
  uint32_t mappable(const Request& send) const noexcept;
  std::optional<CopyChoice::Way> way_to_tell(const Request& send) noexcept;
  bool may_fetch(const Request& receive) const noexcept;
  // Something was sent to its peer, too.
  bool is_answered(const Request& receive) const noexcept {
    return receive.sends_before_ != large_sends_;
  }
  // Larger ones that go one way move in parts, which both ends copy at the same time.
  uint64_t most_at_once(bool both_ways) const noexcept {
    if (limits_.takes_turns) return std::min(limits_.at_once_bytes, kMostAtOnceInTurns);
    return both_ways ? limits_.at_once_bytes : limits_.at_once_bytes / 2;
  }
  static uint64_t first_class(const MessageLimits& limits) noexcept {
    return 2 * (limits.takes_turns ? kMostAtOnceInTurns : kMostAtOnceOnHost);
  }
  void grant(Request& request, ConstBytes payload = {});
  static bool can_be_offered(const Request& send) noexcept;
  CopyChoice& choice_of(const Request& receive) noexcept {
    return receive.both_ways_ ? both_ways_ : one_way_;
  }
  void choose(Request& receive, const Offer* offer) noexcept;
  bool goes_through_channel(Request& receive) noexcept;
  bool begin(Fetch& fetch);
  bool leaves_at_once(Request& request) noexcept;
  void end_time(Request& request, CopyChoice::Way way, bool refused = false) noexcept;
  void leave_channel(Request& request) noexcept;
  void forget(Request& receive);
  uint64_t fetched_from(const Request& request) const noexcept;
  Channel::Fetched fetch_some(const Fetch& fetch);
  Channel::Fetched consume_some(const Fetch& fetch);
  static void heed(Request& request, const Grant& grant) noexcept;
  void take(Request& request, uint32_t tag, ConstBytes whole);
  const char* start(Receives& in, Request& request, uint64_t length, uint32_t tag,
                    ConstBytes offer);
  void return_credit(uint64_t bytes);
  EarlyNode take_early(Receives& in, EarlyPlace place);
  void keep_spare(EarlyNode node);
  bool keep_early(Receives& in, const Frame& frame, ConstBytes payload);
  // nullptr: the stream is closed.
  Sends* sends(uint32_t stream);
  Receives* receives(uint32_t stream);

  Outbox& out_;
  const Regions& regions_;
  MessageLimits limits_;
  const ClosedStreams& closed_;
  uint64_t eager_out_ = 0;    // of the peer's credit, in use
  uint64_t taken_ = 0;        // of ours, not yet given back
  uint64_t early_bytes_ = 0;  // kept for later
  uint64_t open_early_ = 0;   // entries that came before their partner, in all streams
  // Where early messages were, for the next ones: a peer that is a step ahead is usual.
  std::vector<EarlyNode> spare_;
  size_t spare_bytes_ = 0;
  std::vector<Fetch> fetches_;  // the first one is at work
  AtOnceChoice at_once_;
  CopyChoice one_way_, both_ways_;
  uint64_t large_sends_ = 0, large_receives_ = 0;  // over eager_bytes, so far
  uint64_t receives_before_ = 0;                   // when the last such message was sent
  bool has_told_ = false;                          // how the next message that comes back will move
  bool was_refused_ = false;                       // what the leader fetches cannot be fetched here
  uint32_t through_channel_ = 0;  // messages that it has sent that way, not there yet
  std::unordered_map<uint32_t, Sends> sends_;
  std::unordered_map<uint32_t, Receives> receives_;
  std::pair<uint32_t, Sends*> last_sends_{};  // the stream used last: most have one at a time
  std::pair<uint32_t, Receives*> last_receives_{};
};

// Copies `chunk` to where it belongs in the request's pieces. Not for chunks that are in place
// already.
void scatter(std::span<const Bytes> pieces, uint64_t offset, ConstBytes chunk,
             bool past_caches = false) noexcept;
// The one contiguous part of `pieces` that holds [offset, offset + size), else empty.
Bytes contiguous(std::span<const Bytes> pieces, uint64_t offset, uint64_t size) noexcept;

}  // namespace torch::comms::transport
