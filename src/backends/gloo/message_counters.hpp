#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "monitor/monitor_message.hpp"

namespace torch::comms::gloo {

// Counts the messages of a communicator by peer rank: those that this rank has posted, and those
// that have completed successfully. After a peer has closed the communicator and announced its own
// counts, the counters show which messages with that peer can still complete.
// Threads: any.
class GlooMessageCounters {
 public:
  // Counts a posted message. For a receive, `peer` may be kAnySource.
  void post(bool sends, int peer);
  // Counts a completed message. `peer` is its source or target. `from_any`: the receive was posted
  // with kAnySource.
  void end(bool sends, int peer, bool from_any);

  // Returns: the counts that this rank announces to `peer` when it closes the communicator.
  monitor::PostedCounts posted(int peer) const;
  // Returns: true if this rank has received all messages that the peer has sent, so that no further
  // receive from the peer can complete. `peer_counts` are the counts that the peer has announced.
  bool has_received_all_from(int peer, const monitor::PostedCounts& peer_counts) const;
  // Returns: true if every receive of the peer has its message from this rank, so that no further
  // send to the peer can complete.
  bool has_sent_all_to(int peer, const monitor::PostedCounts& peer_counts) const;

 private:
  struct MessageCount {
    uint64_t posted = 0, completed = 0;
  };
  struct PeerMessageCounts {
    MessageCount sends, receives;
    uint64_t matched = 0;  // kAnySource receives that took a message of this peer
  };
  PeerMessageCounts counts_of(int peer) const;
  PeerMessageCounts& mutable_counts_of(int peer);

  mutable std::mutex mutex_;  // guards all members below
  std::vector<PeerMessageCounts> by_peer_;
  MessageCount from_any_;
};

}  // namespace torch::comms::gloo
