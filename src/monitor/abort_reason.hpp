#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>

namespace torch::comms::monitor {

// Why a rank ends its communicator.
struct AbortReason {
  Errc code = Errc::kAborted;
  std::string reason = {};
  std::vector<int32_t> culprits = {};  // the ranks at fault
};

// The same as an error of the others, who hear it of `rank`: what befell that rank itself is, for
// them, that it has failed, and what it should not have called, that it disagrees.
AbortReason as_seen_by_peers(AbortReason why, int rank);

}  // namespace torch::comms::monitor
