#pragma once

#include <string>

namespace torch::comms::base {

// Error texts for an operation that waits for `rank`, which has closed the communicator cleanly.
// All transports use them.
inline std::string peer_closed_text(int rank) {
  return "rank " + std::to_string(rank) +
         " has closed the communicator, by finalize() or because its program ended";
}

// Error texts for a receive from `rank` and for a send to `rank`; they also say what the caller can
// change.
inline std::string no_more_sends_text(int rank) {
  return peer_closed_text(rank) +
         ", and sends nothing more: match every recv with a send that is called before finalize()";
}
inline std::string no_more_receives_text(int rank) {
  return peer_closed_text(rank) +
         ", and receives nothing more: match every send with a recv that is called before "
         "finalize()";
}

}  // namespace torch::comms::base
