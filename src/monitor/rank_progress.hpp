#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "monitor/fingerprint.hpp"

namespace torch::comms::monitor {

// An operation that is not a collective of the group: a send, a receive, a batch of them, a split,
// or a call on a window.
struct NonCollectiveCall {
  char name[24] = {};
  uint64_t bytes = 0;
  uint64_t messages = 0;  // 0: moves no messages
  int32_t peer = -1;      // of a single message or signal
  uint32_t sends = 0;     // of the messages; 1 for a signal to `peer`

  // Returns a text such as "recv of 12 bytes from rank 1", "batch_op_issue of 3 messages, 36 bytes"
  // or "signal to rank 2".
  std::string format() const;
};

// The progress of a rank in a group, by its own count, as trivially copyable data that is sent to
// peers.
struct RankProgress {
  uint64_t called = 0, finished = 0;  // numbers of the last collective called and completed
  Fingerprint fingerprint = {};       // of the running collective, else of the last completed one
  uint64_t p2p_started = 0, p2p_finished = 0;
  NonCollectiveCall last_p2p = {};  // the last one started
  uint32_t is_member = 1;           // 0: the rank has no such group, not yet or no longer
  uint32_t spare = 0;

  // Returns a text such as "in barrier() as number 7, after number 6". `with_finished_p2p`:
  // includes the last completed p2p call.
  std::string format(bool with_finished_p2p) const;
};

// The progress of all ranks of a group, as collected by one query.
struct ProgressReport {
  int size = 1;         // ranks of the group
  uint64_t number = 0;  // the collective that failed; 0: none
  std::chrono::milliseconds waited{0};
  std::unordered_map<int, RankProgress> progress = {};  // by rank, of ranks that replied
  std::unordered_map<int, const char*> unreachable =
      {};                        // by rank: why the rank could not be asked
  std::vector<int> closed = {};  // the unreachable ranks that have closed the group

  // Returns a text: which ranks are behind, and since when, which did not answer, and the progress
  // of all ranks. Ranks with the same progress share one entry. At most about 2,000 characters.
  std::string format() const;
  // Returns the ranks that the other ranks wait for: those that are behind, silent or closed;
  // ascending.
  std::vector<int> culprits() const;
  // Returns the ranks that neither replied nor are unreachable, ascending.
  std::vector<int> silent() const;
};

// Returns a text such as "rank 3" or "ranks 0-2, 4". `ranks` must be ascending and not empty. Long
// lists end in "and N more".
std::string format_rank_list(std::span<const int> ranks);

}  // namespace torch::comms::monitor
