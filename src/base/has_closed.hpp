#pragma once

#include <string>

namespace torch::comms::base {

// Why what waits for `rank`, which has left in good order, waits in vain: alike on every way that a
// rank may be waited for.
inline std::string has_closed(int rank) {
  return "rank " + std::to_string(rank) +
         " has closed the communicator, by finalize() or as its program ended";
}

// The same of a receive from it, and of a send to it, with what the caller can change.
inline std::string sends_no_more(int rank) {
  return has_closed(rank) +
         ", and sends nothing more: match every recv with a send that is called before finalize()";
}
inline std::string receives_no_more(int rank) {
  return has_closed(rank) +
         ", and receives nothing more: match every send with a recv that is called before "
         "finalize()";
}

}  // namespace torch::comms::base
