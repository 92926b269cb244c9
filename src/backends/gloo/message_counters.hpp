#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "monitor/monitor_message.hpp"

namespace torch::comms::gloo {

// Counts the messages of a communicator, by peer rank: those that this rank has posted, and those
// that are known to have ended well. When a peer has closed the communicator and has told its own
// counts, they say which messages with it can still come.
//
// Threads: any.
class GlooMessageCounters {
 public:
  // `peer`, of a receive: kAnySource, too.
  void post(bool sends, int peer);
  // `peer`: where the message came from, or went. `from_any`: its receive was one from any rank.
  void end(bool sends, int peer, bool from_any);

  // What a peer is told when this rank closes the communicator.
  monitor::PostedCounts posted(int peer) const;
  // `theirs`: what the peer has told. All that the peer has sent has been received here, so that no
  // receive from it will end any more.
  bool has_received_all_from(int peer, const monitor::PostedCounts& theirs) const;
  // Every receive of the peer has its message from here, so that no further send to it will end.
  bool has_sent_all_to(int peer, const monitor::PostedCounts& theirs) const;

 private:
  struct MessageCount {
    uint64_t posted = 0, completed = 0;
  };
  struct PeerMessageCounts {
    MessageCount sends, receives;
    uint64_t matched = 0;  // receives from any rank that took a message of this peer
  };
  PeerMessageCounts counts_of(int peer) const;
  PeerMessageCounts& mutable_counts_of(int peer);

  mutable std::mutex mutex_;                // guards all below
  std::vector<PeerMessageCounts> by_peer_;  // by peer
  MessageCount from_any_;
};

}  // namespace torch::comms::gloo
