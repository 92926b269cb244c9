#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/abort_reason.hpp"
#include "transport/transport.hpp"

namespace torch::comms::ctran {

// A message about a group that ranks exchange outside of the group's operations.
struct ControlMessage {
  enum class Kind : uint8_t {
    kMonitor = 1,
    kFailed,
    kCountsQuery,
    kLeaving,
    kTagStream,
    kQuiesced
  };
  Kind kind = Kind::kFailed;
  uint32_t base = 0;  // identifies the group: its first stream
  // kQuiesced: the rank of the context that has quiesced. kTagStream: a tag; the sender's messages
  // with it come on stream `sequence`.
  int32_t subject = -1;
  // kCountsQuery: number of the collective. kLeaving: number of the sender's last collective.
  uint64_t sequence = 0;
  // kCountsQuery, about an all_to_all with per-rank counts: the elements that the sender sends to
  // the receiver of this message, and expects from it.
  int64_t sent = 0, expected = 0;
  monitor::AbortReason failure = {};  // kFailed: the error of the group; at most kMostCulprits
  bool has_progress_report = false;   // kFailed: the reason includes a progress report
  bool has_open_receives = false;     // kLeaving: the sender still has open receives or collectives
  std::string monitor_message = {};   // kMonitor: MonitorMessage::serialize()

  static constexpr size_t kMostCulprits = 32;
  std::string serialize() const;
  // Throws: CommError(kMismatch) for a text that is not a serialized message.
  static ControlMessage parse(std::string_view text);
};

// Sends and receives control messages on stream 0 of every link. One receive per connected peer is
// always posted. It is small, because a large one would count for the choice between eager and
// rendezvous messages: longer messages travel in parts, and the first byte of each part says
// whether another part follows.
// Threads: the caller holds the engine's lock.
class ControlChannel {
 public:
  static constexpr uint32_t kStream = 0;

  explicit ControlChannel(int size) : inboxes_(static_cast<size_t>(size)) {}

  void post_receive(int peer, transport::Transport& link);
  void send(int peer, transport::Transport& link, const ControlMessage& notice);

  enum class ControlPollResult : uint8_t { kNothing, kMessage, kFailed };
  // Takes the next message from a peer.
  // Returns: kNothing if no message is there; kFailed, once, if the link has failed or the message
  // is malformed.
  ControlPollResult poll(int peer, transport::Transport& link, ControlMessage& notice);
  // Frees the memory of messages that have been sent.
  void release_sent();

 private:
  static constexpr size_t kMostBytes = 4096;
  struct ControlInbox {
    transport::Request request;
    std::array<char, kMostBytes> bytes;
    std::string text;  // the parts received so far
    bool has_failed = false;
  };
  struct OutgoingControlMessage {
    transport::Request request;
    std::string text;
  };
  std::vector<std::unique_ptr<ControlInbox>> inboxes_;  // by rank of the context
  std::list<OutgoingControlMessage> outgoing_;
};

}  // namespace torch::comms::ctran
