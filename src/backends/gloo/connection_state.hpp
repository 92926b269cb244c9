#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backends/gloo/gloo_call.hpp"
#include "backends/gloo/torch_compat.hpp"

namespace torch::comms::gloo {

// Records which connections of a communicator can still be used, and keeps the buffers of messages
// that never completed.
//
// A collective that times out makes all connections unusable, because Gloo then closes them. A
// message that times out stays posted in Gloo: its buffer would receive the peer's next message.
// Therefore no further message goes to that peer, and the buffer stays alive. If the buffer were
// destroyed earlier, it would block the connection and with it the collectives.
//
// Threads: any.
class ConnectionState {
 public:
  // Throws: CommError(kPeerFailed), which names the operation that closed the connections.
  void require_open(const GlooCall& call) const;
  // Throws: CommError(kPeerFailed) if the connections are closed or abandon_peer() was called for
  // `peer`.
  void require_peer(const GlooCall& call, int peer) const;

  // Marks all connections as closed by the operation `why`. Returns: true on the first call.
  bool close(const std::string& why);
  // Forbids further messages with `peer`; `why` names the operation that timed out.
  void abandon_peer(int peer, const std::string& why);
  void retain_unfinished(NativeWorkPtr unfinished);

  // Destroys the retained buffers. Call it after the native group is destroyed.
  void clear();

 private:
  std::atomic<bool> is_closed_{false};  // closed_by_ is set before this
  mutable std::mutex mutex_;            // guards all below
  std::string closed_by_;
  std::map<int, std::string> abandoned_;
  std::vector<NativeWorkPtr> unfinished_;
};

}  // namespace torch::comms::gloo
