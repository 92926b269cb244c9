#pragma once

#include <string>

namespace torch::comms::base {

// Why what waits for `rank`, which has left in good order, waits in vain: alike on every way that a
// rank may be waited for.
inline std::string has_closed(int rank) {
  return "rank " + std::to_string(rank) +
         " has closed the communicator, by finalize() or as its program ended";
}

}  // namespace torch::comms::base
