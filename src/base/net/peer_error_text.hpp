#pragma once

#include <string>

namespace torch::comms::base {

// Why what waits for `rank`, which has left in good order, waits in vain: alike on every way that a
// rank may be waited for.
inline std::string peer_closed_text(int rank) {
  return "rank " + std::to_string(rank) +
         " has closed the communicator, by finalize() or as its program ended";
}

// The same of a receive from it, and of a send to it, with what the caller can change.
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
