#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/abort_reason.hpp"
#include "monitor/rank_status.hpp"

namespace torch::comms::monitor {

// A query of one rank to all ranks of its group: what did you call as collective `number`, and what
// is your progress?
struct MonitorQuery {
  enum class Purpose : uint64_t {
    kCheckMismatch,   // do all ranks call the same?
    kReportMismatch,  // what do they call? The origin has seen in its data that it differs
    kReportProgress,  // the origin is about to fail an operation and reports the progress of all
    kAnnounceAbort,   // the origin aborts once all reachable ranks know: see
                      // MonitorMessage::abort_reason
  };
  uint64_t number = 0;  // 0: only the progress
  Purpose purpose = Purpose::kCheckMismatch;
  int32_t origin = -1;
  uint32_t serial = 0;  // counts the queries of the origin

  friend bool operator==(const MonitorQuery&, const MonitorQuery&) = default;
  // Of two concurrent queries, returns whether this one continues and the other stops. The other
  // origin then gets the result of this one. The later number wins, because a rank that is behind
  // cannot know what the ranks ahead disagree about. Of observed mismatches the earlier one wins: a
  // rank that has completed that collective finds its remains in a later one.
  bool supersedes(const MonitorQuery& other) const noexcept {
    if (purpose != other.purpose) return purpose > other.purpose;
    if (number != other.number)
      return (number > other.number) != (purpose == Purpose::kReportMismatch);
    if (origin != other.origin) return origin < other.origin;
    return serial > other.serial;
  }
};

// The point-to-point messages between two ranks that one of them had posted when it closed the
// group.
struct PostedCounts {
  uint64_t sends = 0;                // to the other rank
  uint64_t receives = 0;             // from the other rank; any-source receives count once matched
  uint64_t has_open_any_source = 0;  // 1: any-source receives are still open
  friend bool operator==(const PostedCounts&, const PostedCounts&) = default;
};

// A message between neighbors of a group. Ranks are ranks of the group.
struct MonitorMessage {
  enum class Kind : uint8_t {
    kFailed = 1,  // rank `failed_rank` has failed
    kClosed,      // the sender has closed the group after collective `number`
    kQuery,       // see `query`
    kReply,       // the statuses of the sender and of all ranks that it has asked; none: the sender
                  // has no such group
    kResult,      // the result of a query: see `is_mismatch`
    kCheck,       // as kReply, for a consistency check before the collective begins
    kProceed,     // all ranks have called collective `number` with the same fingerprint
  };
  Kind kind = Kind::kFailed;
  uint64_t group = 0;
  uint64_t number = 0;            // kClosed, kResult, kCheck, kProceed
  int32_t failed_rank = -1;       // kFailed
  MonitorQuery query = {};        // kQuery, kReply, kResult
  uint32_t reply_timeout_ms = 0;  // kQuery: how long the sender waits for the reply
  bool is_mismatch =
      false;  // kResult: ranks disagree about `number`; else `reason` has the progress of all
  // kResult. kFailed: why the rank has failed. kReply to kReportMismatch: what the sender, or a
  // rank that it has asked, has seen in its data.
  std::string reason = {};
  std::vector<int32_t> culprits = {};  // kResult: at most kMaxCulprits
  RankStatusSet statuses = {};         // kReply, kCheck
  AbortReason abort_reason = {};       // kQuery with kAnnounceAbort; at most kMaxCulprits culprits
  std::optional<PostedCounts> posted = {};  // kClosed: between the sender and the receiver

  bool has_reason() const noexcept {
    return kind == Kind::kResult || kind == Kind::kFailed ||
           (kind == Kind::kReply && query.purpose == MonitorQuery::Purpose::kReportMismatch);
  }
  static constexpr size_t kMaxCulprits = 256;
  static constexpr size_t kMaxBytes = size_t{4} << 20;
  std::string serialize() const;
  // Parses a message for a receiver whose groups have at most `size` ranks. Throws:
  // CommError(kMismatch).
  static MonitorMessage parse(std::string_view text, int size);
};

}  // namespace torch::comms::monitor
