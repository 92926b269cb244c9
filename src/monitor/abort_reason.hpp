#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>

namespace torch::comms::monitor {

// Why a rank aborts its communicator.
struct AbortReason {
  Errc code = Errc::kAborted;
  std::string reason = {};
  std::vector<int32_t> culprits = {};  // the ranks at fault
};

// Converts the abort reason of `rank` into the error that its peers raise. A failure of that rank
// itself becomes kPeerFailed. An invalid call of that rank becomes kMismatch.
AbortReason as_seen_by_peers(AbortReason why, int rank);

// Returns the text of the error that the peers of a failed rank raise. `why`: such as "its process
// (7) has ended".
std::string failed_rank_text(int rank, const std::string& why);

}  // namespace torch::comms::monitor
