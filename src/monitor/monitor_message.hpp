#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/abort_reason.hpp"
#include "monitor/rank_status.hpp"

namespace torch::comms::monitor {

// A question of a member of a group, to all of them: what did you call as collective `number`, and
// where are you?
struct MonitorQuery {
  enum class Purpose : uint64_t {
    kCheckMismatch,   // do all call the same?
    kReportProgress,  // the asker may end its communicator, and says where all were
    kAnnounceAbort,  // the asker ends it when all who can have heard so: see MonitorMessage::ending
  };
  uint64_t number = 0;  // 0: only where they are
  Purpose purpose = Purpose::kCheckMismatch;
  int32_t origin = -1;
  uint32_t serial = 0;  // of the asker's questions

  friend bool operator==(const MonitorQuery&, const MonitorQuery&) = default;
  // Of two that meet the one that goes on: the other asker hears of its outcome. Who is behind
  // knows nothing of what the others may disagree about, so the later number counts.
  bool supersedes(const MonitorQuery& other) const noexcept {
    if (purpose != other.purpose) return purpose > other.purpose;
    if (number != other.number) return number > other.number;
    if (origin != other.origin) return origin < other.origin;
    return serial > other.serial;
  }
};

// The messages between two members that one of them has posted by the time when it closes the
// group.
struct PostedCounts {
  uint64_t sends = 0;                // to the other member
  uint64_t receives = 0;             // from the other member; those from any rank only once matched
  uint64_t has_open_any_source = 0;  // 1: receives from any rank are still open
  friend bool operator==(const PostedCounts&, const PostedCounts&) = default;
};

// What neighbours of a group tell each other. Ranks are those of the group.
struct MonitorMessage {
  enum class Kind : uint8_t {
    kFailed = 1,  // rank `about` has failed
    kClosed,      // the sender has closed the group, in good order, after collective `number`
    kQuery,       // `question`
    kReply,       // the answers of the sender, and of all that it has asked
    kResult,      // what came of a question: see `mismatch`
    kCheck,       // the same as kReply, before the collective begins
    kProceed,     // all have called collective `number` alike
  };
  Kind kind = Kind::kFailed;
  uint64_t group = 0;
  uint64_t number = 0;            // kLeftText, kResult, kCheck, kProceed
  int32_t failed_rank = -1;       // kFailed
  MonitorQuery query = {};        // kQuery, kReply, kResult
  uint32_t reply_timeout_ms = 0;  // kQuery: how long the sender waits for the answer
  bool is_mismatch =
      false;  // kResult: ranks disagree about `number`; else `why` says where all were
  std::string reason = {};                  // kResult
  std::vector<int32_t> culprits = {};       // kResult: the ranks at fault, kMaxCulprits at most
  RankStatusSet statuses = {};              // kReply, kCheck
  AbortReason abort_reason = {};            // kQuery of an end; kMaxCulprits at most
  std::optional<PostedCounts> posted = {};  // kLeftText: between the sender and the reader

  static constexpr size_t kMaxCulprits = 256;
  static constexpr size_t kMaxBytes = size_t{4} << 20;
  std::string serialize() const;
  // For a reader of groups of `size` ranks at most. Throws CommError(kSizeMismatch).
  static MonitorMessage parse(std::string_view text, int size);
};

}  // namespace torch::comms::monitor
