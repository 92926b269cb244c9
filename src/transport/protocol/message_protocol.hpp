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

// Options of the message protocol with one peer; sizes in bytes.
struct MessageProtocolOptions {
  uint64_t eager_bytes = 0;  // larger messages wait for their receive
  // The largest message of try_send(), and of send() where an eager message of that size is faster.
  uint64_t inline_eager_bytes = 0;
  // Bytes of eager messages that the receiver keeps before their receives are posted; equal on all
  // ranks.
  uint64_t eager_credit = 0;
  // Ranks share cores: a wait for an answer is also a wait for the peer's turn.
  bool is_oversubscribed = false;
  // This rank chooses the path of messages in both directions, where they go both ways.
  bool is_initiator = false;
  // Where in large messages a remote read begins, of 65,536.
  uint32_t copy_start_fraction = 0;
};

// The protocol of two-sided messages with one peer. Messages are matched by (stream, number in the
// stream), then their tags are compared.
//
// A small message is one kEager frame, as long as the receiver's credit lasts; so is a slightly
// larger message where that is faster. Any other message is a rendezvous: kRts announces its
// length, and kData frames move it after kCts has said that the receive is posted. A receive for a
// large message sends kCts at once, so kCts usually arrives before the send is posted. The frames
// of all streams share a channel without blocking each other, because all data that are sent have
// memory waiting for them.
//
// Where the connection supports remote reads, kRts carries a RemoteReadDescriptor, and the receiver
// sends no kCts before it has arrived. The receiver copies the message itself and answers with
// kReadDone. It answers with kCts for data that it could not read, or if copy-in/copy-out is
// faster. Where ranks share cores it chooses copy-in/copy-out before kRts arrives. Where messages
// of one size go both ways at the same time, one side chooses the path for both and measures it.
// The reason is that the cost of one direction depends on the path of the other. A receive with a
// ReceiveSink sends kCts at once, unless memory of the peer is mapped: then it waits for kRts, too,
// and reads the message from the mapping.
//
// Every on_...() takes a received frame. It returns nullptr, or why the frame breaks the protocol.
class MessageProtocol {
 public:
  MessageProtocol(SendQueue& out, const RegionTable& regions, const MessageProtocolOptions& options,
                  const ClosedStreams& closed)
      : out_(out),
        regions_(regions),
        options_(options),
        closed_(closed),
        eager_tuner_(options.is_oversubscribed),
        one_way_tuner_(first_class(options),
                       options.is_oversubscribed ? 0 : kMaxInitialRemoteReadBytes),
        two_way_tuner_(first_class(options)) {}

  uint64_t inline_eager_bytes() const noexcept { return options_.inline_eager_bytes; }
  // Returns: whether PeerProtocol stops receiving after this frame, a large eager message. The
  // caller may then post the receive of the next message, which goes directly to its memory instead
  // of being kept as unexpected.
  bool ends_turn(const Frame& frame) const noexcept {
    return frame.kind == FrameKind::kEager && frame.bytes > options_.eager_bytes &&
           out_.supports_remote_read();
  }
  void send(Request& request);
  void receive(Request& request);
  // Implements Transport::try_send().
  bool try_send(uint32_t stream, ConstBytes bytes, uint32_t tag);
  // Takes the next message of the stream if it is here as a whole unexpected message with this size
  // and tag.
  // Returns: whether it was taken.
  bool take_unexpected(uint32_t stream, const ReceiveTarget& target, uint32_t tag);
  // Returns: whether the next receive of the stream would take this frame and no unexpected message
  // precedes it.
  bool is_next(const Frame& frame);
  // Records that the frame of is_next() was taken without a receive.
  void on_received_in_place(const Frame& frame);
  // Returns: whether all of the next message of the stream has arrived before its receive. It may
  // be received after fail(), too, because the sender may have ended after all its work.
  bool has_whole_unexpected(uint32_t stream) const noexcept;
  // Implements Transport::has_message().
  bool has_unexpected(uint32_t stream) const noexcept { return next_unexpected(stream) != nullptr; }
  // Continues a send of SendQueue::ready.
  // Returns: true if the queue may remove it.
  bool push(Request& request, bool& moved);
  // Copies parts of messages that the peer has described for remote reads.
  // Returns: whether there were any.
  bool progress_reads();
  bool has_reads() const noexcept { return !reads_.empty(); }
  void fail(Errc error) noexcept;
  // Ends a request that is not done and has no matching operation; see Transport::cancel().
  void cancel(Request& request, Errc error);
  // Implements Transport::close_streams(); the caller has added the range to `closed`.
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
  // A message that came before its receive.
  struct UnexpectedMessage {
    uint64_t length = 0;
    uint32_t tag = 0;
    bool is_whole = false;        // an eager message; else an announced one
    std::vector<std::byte> data;  // of an announced one: its descriptor, if any
  };
  using UnexpectedNode = std::unordered_map<uint32_t, UnexpectedMessage>::node_type;
  using UnexpectedIterator = std::unordered_map<uint32_t, UnexpectedMessage>::const_iterator;
  // Measures the copies of a receive that is timed.
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
    bool is_mapped = false;  // it is read from the mapping
  };
  struct SendStream {
    uint32_t next = 0;
    std::unordered_map<uint32_t, Request*> open;
    // CTS of receives that were posted before their sends.
    std::unordered_map<uint32_t, ReceivedCts> early_cts;
  };
  struct ReceiveStream {
    uint32_t next = 0, first = 0;   // numbers of the next receive and of posted[0]
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
                  uint32_t* frames_in_use);
  bool send_rts(Request& request);
  bool describe_for_read(Request& request, RemoteReadDescriptor& offer) noexcept;
  uint32_t mappable_key(const Request& send) const noexcept;
  std::optional<CopyPathTuner::CopyPath> path_to_announce(const Request& send) noexcept;
  bool can_read_remotely(const Request& receive) const noexcept;
  // Returns: whether a large message was sent to the peer since the receive was posted.
  bool is_two_way(const Request& receive) const noexcept {
    return receive.sends_before_ != large_sends_;
  }
  // Returns: the largest eager message that the tuner may choose. Larger messages that go one way
  // move in parts, which both ends copy at the same time.
  uint64_t max_inline_eager_bytes(bool both_ways) const noexcept {
    if (options_.is_oversubscribed)
      return std::min(options_.inline_eager_bytes, kMaxInlineEagerBytesOversubscribed);
    return both_ways ? options_.inline_eager_bytes : options_.inline_eager_bytes / 2;
  }
  static uint64_t first_class(const MessageProtocolOptions& options) noexcept {
    return 2 *
           (options.is_oversubscribed ? kMaxInlineEagerBytesOversubscribed : kMaxInlineEagerBytes);
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
  void record_time(Request& request, CopyPathTuner::CopyPath path, bool refused = false) noexcept;
  void end_copy_in_out(Request& request) noexcept;
  void forget(Request& receive);
  uint64_t read_offset(const Request& request) const noexcept;
  PeerConnection::RemoteReadStatus read_some(const RemoteRead& fetch);
  PeerConnection::RemoteReadStatus consume_some(const RemoteRead& fetch);
  static void apply_cts(Request& request, const ReceivedCts& cts) noexcept;
  void receive_whole(Request& request, uint32_t tag, ConstBytes whole);
  const char* start_receive(ReceiveStream& in, Request& request, uint64_t length, uint32_t tag,
                            ConstBytes offer);
  void return_credit(uint64_t bytes);
  UnexpectedNode extract_unexpected(ReceiveStream& in, UnexpectedIterator place);
  void recycle_node(UnexpectedNode node);
  bool store_unexpected(ReceiveStream& in, const Frame& frame, ConstBytes payload);
  // Returns: the state of the stream; nullptr if the stream is closed.
  SendStream* sends(uint32_t stream);
  ReceiveStream* receives(uint32_t stream);

  SendQueue& out_;
  const RegionTable& regions_;
  MessageProtocolOptions options_;
  const ClosedStreams& closed_;
  uint64_t credit_in_use_ = 0;      // of the peer's credit, in bytes
  uint64_t credit_to_return_ = 0;   // of this rank's credit, not returned yet
  uint64_t unexpected_bytes_ = 0;   // bytes of unexpected messages
  uint64_t unmatched_entries_ = 0;  // entries without a partner yet, in all streams
  // Nodes of former unexpected messages, reused for the next ones: a peer is often one step ahead.
  std::vector<UnexpectedNode> spare_nodes_;
  size_t spare_bytes_ = 0;
  std::vector<RemoteRead> reads_;  // the first one is in progress
  EagerThresholdTuner eager_tuner_;
  CopyPathTuner one_way_tuner_, two_way_tuner_;
  uint64_t large_sends_ = 0, large_receives_ = 0;  // over eager_bytes, so far
  // Value of large_receives_ when the last large message was sent.
  uint64_t receives_before_ = 0;
  // Whether the path of the next message of the other direction was announced.
  bool has_announced_path_ = false;
  // The initiator's path cannot be followed: a remote read was refused here.
  bool is_read_refused_ = false;
  // Receives whose messages are on their way by copy-in/copy-out.
  uint32_t copy_in_out_in_flight_ = 0;
  std::unordered_map<uint32_t, SendStream> sends_;
  std::unordered_map<uint32_t, ReceiveStream> receives_;
  // The stream that was used last; most peers use one at a time.
  std::pair<uint32_t, SendStream*> last_sends_{};
  std::pair<uint32_t, ReceiveStream*> last_receives_{};
};

// Copies `chunk` to byte `offset` of the pieces. Must not be called for a chunk that is in place
// already.
void scatter(std::span<const Bytes> pieces, uint64_t offset, ConstBytes chunk,
             bool past_caches = false) noexcept;
// Returns: the part of one piece that holds [offset, offset + size); empty if no single piece holds
// all of it.
Bytes contiguous(std::span<const Bytes> pieces, uint64_t offset, uint64_t size) noexcept;

}  // namespace torch::comms::transport
