#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/engine/control/collective_fingerprint.hpp"
#include "monitor/rank_progress.hpp"
#include "transport/transport.hpp"

namespace torch::comms::ctran {

using monitor::RankProgress;

// What ranks tell each other beside their operations, about a group.
struct ControlMessage {
  enum class Kind : uint8_t {
    kFailed = 1,
    kFingerprintQuery,
    kMismatch,
    kLeaving,
    kProgressQuery,
    kProgress,
    kTagStream,
    kQuiesced
  };
  Kind kind = Kind::kFailed;
  Errc code = Errc::kInternal;  // kFailed: what the group's error is to be
  uint32_t base = 0;            // the group's streams
  // A rank of the family. kProgressQuery, kProgress: who wants to know. kQuiesced: who does.
  // kTagStream: a tag, whose messages from the sender come on stream `sequence`.
  int32_t subject = -1;
  uint64_t sequence = 0;  // kFingerprintQuery, kMismatch: where; kLeaving: of the last collective
  Fingerprint fingerprint = {};  // kFingerprintQuery, kMismatch: what the sender called
  // kFingerprintQuery, of an exchange whose counts each rank has of its own: elements that the
  // sender sends to, and awaits of, the one that it asks.
  int64_t sent = -1, expected = -1;
  // kFailed. kMismatch: what the sender met that no fingerprint shows, or "".
  std::string reason = {};
  int32_t reporter = -1;             // kProgress: the rank of the family that is there
  RankProgress progress = {};        // kProgress, kFailed: where that rank, or the sender, is
  bool has_progress_report = false;  // kFailed: `why` says where the ranks were
  bool has_open_receives = false;  // kLeaving: receives or collectives of the sender are still open
  std::vector<int32_t> culprits = {};  // kFailed: ranks of the family, kMaxCulprits at most

  bool has_text() const noexcept { return kind == Kind::kFailed || kind == Kind::kMismatch; }
  static constexpr size_t kMostCulprits = 32;
  std::string serialize() const;
  // Throws CommError(kSizeMismatch).
  static ControlMessage parse(std::string_view text);
};

// The stream of notices on every link of a family: one receive a peer is always there.
class ControlChannel {
 public:
  static constexpr uint32_t kStream = 0;

  explicit ControlChannel(int size) : inboxes_(static_cast<size_t>(size)) {}

  void post_receive(int peer, transport::Transport& link);
  void send(int peer, transport::Transport& link, const ControlMessage& notice);

  enum class ControlPollResult : uint8_t { kNothing, kMessage, kFailed };
  // What came from a peer that is listened to; kFailed once.
  ControlPollResult poll(int peer, transport::Transport& link, ControlMessage& notice);
  // Sent notices that have left give back their memory.
  void release_sent();

 private:
  static constexpr size_t kMostBytes = 4096;
  struct ControlInbox {
    transport::Request request;
    std::array<std::byte, kMostBytes> bytes;
    bool has_failed = false;
  };
  struct OutgoingControlMessage {
    transport::Request request;
    std::string text;
  };
  std::vector<std::unique_ptr<ControlInbox>> inboxes_;  // by rank
  std::list<OutgoingControlMessage> outgoing_;
};

}  // namespace torch::comms::ctran
