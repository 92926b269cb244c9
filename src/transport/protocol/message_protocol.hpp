#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/os/secret.hpp"
#include "transport/protocol/closed_streams.hpp"
#include "transport/protocol/compact_queue.hpp"
#include "transport/protocol/copy_path_tuner.hpp"
#include "transport/protocol/eager_tuner.hpp"
#include "transport/protocol/region_table.hpp"
#include "transport/protocol/request.hpp"
#include "transport/protocol/send_queue.hpp"

namespace torch::comms::transport {

struct MessageProtocolOptions {
  uint64_t eager_bytes = 0;  // larger messages wait for their receive
  uint64_t inline_eager_bytes =
      0;                      // the same, of those without a request; and where that is faster
  uint64_t eager_credit = 0;  // bytes of messages without one, kept by the receiver; equal on ranks
  bool is_oversubscribed =
      false;                  // ranks share cores: who waits for an answer waits for a turn, too
  bool is_initiator = false;  // where messages go both ways: says how both move
  uint32_t copy_start_fraction =
      0;  // where in large messages of peers' memory a copy begins, of 65,536
};

// Two-sided messages with one peer, matched by (stream, number in the stream), and then compared by
// their tags.
//
// A small message is one kEager frame, as long as the receiver's credit lasts, and one that is not
// much larger if that takes less time. Any other announces its length with kRts and moves in
// kData frames once kCts says that its receive is there; a receive for a large message grants at
// once, so the grant is usually there before the send. The frames of all streams share a channel
// without blocking each other: whatever is sent has memory waiting for it.
//
// Where the channel fetches, kRts carries an RemoteReadDescriptor, nothing is granted before it
// comes, and the receiver copies the message itself and answers kReadDone; or kCts, for as much as
// it could not, or if both ends copy it in less time; which, where ranks take turns, it says before
// the offer comes. Where messages of one size go both ways at the same time, one side decides that
// for both, and measures it, for what one costs depends on what becomes of the other. Receives with
// a consumer grant as everywhere, unless memory of the peer is mapped: then they, too, wait for
// what is offered, and read it where it lies.
//
// Every on_...() takes a frame that came; it returns nullptr, or why the peer cannot have meant it.
class MessageProtocol {
 public:
  MessageProtocol(SendQueue& out, const RegionTable& regions, const MessageProtocolOptions& limits,
                  const ClosedStreams& closed)
      : out_(out),
        regions_(regions),
        options_(limits),
        closed_(closed),
        eager_tuner_(limits.is_oversubscribed),
        one_way_tuner_(first_class(limits),
                       limits.is_oversubscribed ? 0 : kMaxInitialRemoteReadBytes),
        two_way_tuner_(first_class(limits)) {}

  uint64_t inline_eager_bytes() const noexcept { return options_.inline_eager_bytes; }
  // After a message that is not small, others wait: its receiver may have a receive for the next
  // one in a moment, which is then not kept for it, but goes where it belongs.
  bool ends_turn(const Frame& frame) const noexcept {
    return frame.kind == FrameKind::kEager && frame.bytes > options_.eager_bytes &&
           out_.supports_remote_read();
  }
  void send(Request& request);
  void receive(Request& request);
  // As Transport::try_send().
  bool try_send(uint32_t stream, ConstBytes bytes, uint32_t tag);
  // The next message of the stream has been kept, whole, with this size and tag: takes it.
  bool take_unexpected(uint32_t stream, const ReceiveTarget& landing, uint32_t tag);
  // The next receive of the stream would take this frame, and no message was kept for it.
  bool is_next(const Frame& frame);
  // That frame has been taken in place of a receive.
  void on_taken_in_place(const Frame& frame);
  // Whether all of the next message of the stream has come before its receive. It may be received
  // after fail(), too: its sender may have ended because it was done.
  bool has_whole_unexpected(uint32_t stream) const noexcept;
  // As Transport::has_message().
  bool has_unexpected(uint32_t stream) const noexcept { return next_unexpected(stream) != nullptr; }
  // Goes on with a send of SendQueue::ready; true if that may forget it.
  bool push(Request& request, bool& moved);
  // Copies some of what the peer has offered; true if there was anything.
  bool progress_reads();
  bool has_reads() const noexcept { return !reads_.empty(); }
  void fail(Errc error) noexcept;
  // Ends a request that is not done, and that has no partner: see Transport::cancel().
  void cancel(Request& request, Errc error);
  // As Transport::close_streams(); the range has been added to `closed`.
  void close(uint32_t first, uint32_t last, Errc error);

  const char* on_eager(const Frame& frame, ConstBytes payload);
  const char* on_rts(const Frame& frame, ConstBytes payload);
  const char* on_cts(const Frame& frame, ConstBytes payload);
  const char* on_read_done(const Frame& frame);
  const char* on_nack(const Frame& frame);
  Bytes data_target(const Frame& frame);
  const char* on_data(const Frame& frame, ConstBytes payload);
  const char* on_credit(const Frame& frame);

 private:
  using Clock = std::chrono::steady_clock;
  struct UnexpectedMessage {  // came before its receive
    uint64_t length = 0;
    uint32_t tag = 0;
    bool is_whole = false;        // an eager message; else an announced one
    std::vector<std::byte> data;  // of that its RemoteReadDescriptor, if it has one
  };
  using UnexpectedNode = std::unordered_map<uint32_t, UnexpectedMessage>::node_type;
  using UnexpectedIterator = std::unordered_map<uint32_t, UnexpectedMessage>::const_iterator;
  // Of the copies of a receive that is timed.
  class CopyTimer {
   public:
    explicit CopyTimer(Request& receive) noexcept
        : receive_(receive),
          begin_(is_timed(receive.began_) ? Clock::now() : Clock::time_point{}) {}
    void stop() const noexcept {
      if (is_timed(begin_)) receive_.copied_ += Clock::now() - begin_;
    }

   private:
    Request& receive_;
    Clock::time_point begin_;
  };
  struct ReceivedCts {
    uint64_t capacity = 0;
    uint32_t tag = 0;
  };
  struct RemoteRead {
    Request* request = nullptr;
    RemoteReadDescriptor descriptor = {};
    bool is_started = false;
    bool is_mapped = false;  // it is read where it lies
  };
  struct SendStream {
    uint32_t next = 0;
    std::unordered_map<uint32_t, Request*> open;
    std::unordered_map<uint32_t, ReceivedCts> early_cts;  // of receives before their sends
  };
  struct ReceiveStream {
    uint32_t next = 0, first = 0;   // numbers of the next receive and of posted.peek()
    CompactQueue<Request*> posted;  // nullptr: done before an earlier one
    std::unordered_map<uint32_t, UnexpectedMessage> unexpected;

    Request* find(uint32_t number) const noexcept;
    bool comes_later(uint32_t number) const noexcept { return int32_t(number - next) >= 0; }
    void remove(uint32_t number) noexcept;
  };

  const UnexpectedMessage* next_unexpected(uint32_t stream) const noexcept;
  static uint64_t credit_cost(uint64_t bytes) noexcept { return bytes + 64; }
  bool has_credit(uint64_t bytes, uint64_t most, size_t pieces) const noexcept;
  static Frame frame_of(FrameKind kind, const Request& request) noexcept;
  static bool is_cleared(const SendStream& out, uint64_t bytes, uint32_t tag);
  bool try_eager(Request& request);
  bool try_timed(Request& request);
  static bool is_timed(Clock::time_point began) noexcept { return began != Clock::time_point{}; }
  bool send_eager(Frame frame, uint64_t size, std::span<const ConstBytes> pieces,
                  uint32_t* borrowed);
  bool send_rts(Request& request);
  bool describe_for_read(Request& request, RemoteReadDescriptor& offer) noexcept;
  uint32_t mappable_key(const Request& send) const noexcept;
  std::optional<CopyPathTuner::CopyPath> path_to_announce(const Request& send) noexcept;
  bool can_read_remotely(const Request& receive) const noexcept;
  // Something was sent to its peer, too.
  bool is_two_way(const Request& receive) const noexcept {
    return receive.sends_before_ != large_sends_;
  }
  // Larger ones that go one way move in parts, which both ends copy at the same time.
  uint64_t max_inline_eager_bytes(bool both_ways) const noexcept {
    if (options_.is_oversubscribed)
      return std::min(options_.inline_eager_bytes, kMaxInlineEagerBytesOversubscribed);
    return both_ways ? options_.inline_eager_bytes : options_.inline_eager_bytes / 2;
  }
  static uint64_t first_class(const MessageProtocolOptions& limits) noexcept {
    return 2 *
           (limits.is_oversubscribed ? kMaxInlineEagerBytesOversubscribed : kMaxInlineEagerBytes);
  }
  void send_cts(Request& request, ConstBytes payload = {});
  static bool is_remotely_readable(const Request& send) noexcept;
  CopyPathTuner& tuner_of(const Request& receive) noexcept {
    return receive.is_two_way_ ? two_way_tuner_ : one_way_tuner_;
  }
  void choose_path(Request& receive, const RemoteReadDescriptor* offer) noexcept;
  bool uses_copy_in_out(Request& receive) noexcept;
  bool begin(RemoteRead& fetch);
  bool is_sent_eagerly(Request& request) noexcept;
  void record_time(Request& request, CopyPathTuner::CopyPath way, bool refused = false) noexcept;
  void end_copy_in_out(Request& request) noexcept;
  void forget(Request& receive);
  uint64_t read_offset(const Request& request) const noexcept;
  PeerConnection::RemoteReadStatus read_some(const RemoteRead& fetch);
  PeerConnection::RemoteReadStatus consume_some(const RemoteRead& fetch);
  static void apply_cts(Request& request, const ReceivedCts& grant) noexcept;
  void receive_whole(Request& request, uint32_t tag, ConstBytes whole);
  const char* start_receive(ReceiveStream& in, Request& request, uint64_t length, uint32_t tag,
                            ConstBytes offer);
  void return_credit(uint64_t bytes);
  UnexpectedNode extract_unexpected(ReceiveStream& in, UnexpectedIterator place);
  void recycle_node(UnexpectedNode node);
  bool store_unexpected(ReceiveStream& in, const Frame& frame, ConstBytes payload);
  // nullptr: the stream is closed.
  SendStream* sends(uint32_t stream);
  ReceiveStream* receives(uint32_t stream);

  SendQueue& out_;
  const RegionTable& regions_;
  MessageProtocolOptions options_;
  const ClosedStreams& closed_;
  uint64_t credit_in_use_ = 0;      // of the peer's credit, in use
  uint64_t credit_to_return_ = 0;   // of ours, not yet given back
  uint64_t unexpected_bytes_ = 0;   // kept for later
  uint64_t unmatched_entries_ = 0;  // entries that came before their partner, in all streams
  // Where early messages were, for the next ones: a peer that is a step ahead is usual.
  std::vector<UnexpectedNode> spare_nodes_;
  size_t spare_bytes_ = 0;
  std::vector<RemoteRead> reads_;  // the first one is at work
  EagerThresholdTuner eager_tuner_;
  CopyPathTuner one_way_tuner_, two_way_tuner_;
  uint64_t large_sends_ = 0, large_receives_ = 0;  // over eager_bytes, so far
  uint64_t receives_before_ = 0;                   // when the last such message was sent
  bool has_announced_path_ = false;                // how the next message that comes back will move
  bool is_read_refused_ = false;                   // what the leader fetches cannot be fetched here
  uint32_t copy_in_out_in_flight_ = 0;  // messages that it has sent that way, not there yet
  std::unordered_map<uint32_t, SendStream> sends_;
  std::unordered_map<uint32_t, ReceiveStream> receives_;
  std::pair<uint32_t, SendStream*> last_sends_{};  // the stream used last: most have one at a time
  std::pair<uint32_t, ReceiveStream*> last_receives_{};
};

// Copies `chunk` to where it belongs in the request's pieces. Not for chunks that are in place
// already.
void scatter(std::span<const Bytes> pieces, uint64_t offset, ConstBytes chunk,
             bool past_caches = false) noexcept;
// The one contiguous part of `pieces` that holds [offset, offset + size), else empty.
Bytes contiguous(std::span<const Bytes> pieces, uint64_t offset, uint64_t size) noexcept;

}  // namespace torch::comms::transport
