#include "monitor/abort_reason.hpp"

namespace torch::comms::monitor {

AbortReason as_seen_by_peers(AbortReason why, int rank) {
  const std::string self = "rank " + std::to_string(rank);
  switch (why.code) {
    case Errc::kPeerFailed:
    case Errc::kMismatch:
    case Errc::kStaleGeneration:
      return why;
    case Errc::kTimeout:
      if (!why.reason.starts_with("rank ")) why.reason = self + ": " + why.reason;
      return why;
    case Errc::kInvalidArgument:
    case Errc::kOutOfRange:
      return {Errc::kMismatch, self + ": " + why.reason, {rank}};
    case Errc::kAborted:
      return {Errc::kPeerFailed, self + " aborted the communicator: " + why.reason, {rank}};
    default:
      return {Errc::kPeerFailed, self + ": " + why.reason, {rank}};
  }
}

std::string failed_rank_text(int rank, const std::string& why) {
  return "rank " + std::to_string(rank) + " has failed: " + why;
}

}  // namespace torch::comms::monitor
