#include "side/ending.hpp"

namespace torch::comms::side {

Ending seen_by_others(Ending why, int rank) {
  const std::string self = "rank " + std::to_string(rank);
  switch (why.code) {
    case Errc::kPeerFailed:
    case Errc::kMismatch:
    case Errc::kStaleGeneration:
      return why;
    case Errc::kTimeout:
      if (!why.why.starts_with("rank ")) why.why = self + ": " + why.why;
      return why;
    case Errc::kInvalidArgument:
    case Errc::kOutOfRange:
      return {Errc::kMismatch, self + ": " + why.why, {rank}};
    case Errc::kAborted:
      return {Errc::kPeerFailed, self + " aborted the communicator: " + why.why, {rank}};
    default:
      return {Errc::kPeerFailed, self + ": " + why.why, {rank}};
  }
}

}  // namespace torch::comms::side
