#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backends/gloo/gloo_call.hpp"
#include "backends/gloo/torch_compat.hpp"

namespace torch::comms::gloo {

// What of a communicator's connections can still be used, and the buffers of messages that never
// ended. Any thread.
//
// A collective that timed out ends them all: Gloo closes the connections then. A message that timed
// out is still known to Gloo: its buffer would take the peer's next message. So no further message
// goes to that peer, and the buffer lives on; destroying it earlier would block the connection, and
// with it the collectives.
class ConnectionState {
 public:
  // Throws CommError(kPeerFailed) naming the operation that closed the connections.
  void require_open(const GlooCall& call) const;
  // The same, and where messages with `peer` were given up.
  void require_peer(const GlooCall& call, int peer) const;

  // True the first time.
  bool close(const std::string& why);
  void abandon_peer(int peer, const std::string& why);
  void retain_unfinished(NativeWorkPtr unfinished);

  // Once the native group is gone.
  void clear();

 private:
  std::atomic<bool> is_closed_{false};  // then closed_by_ is set
  mutable std::mutex mutex_;            // guards all below
  std::string closed_by_;
  std::map<int, std::string> abandoned_;
  std::vector<NativeWorkPtr> unfinished_;
};

}  // namespace torch::comms::gloo
