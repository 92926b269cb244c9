#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "monitor/fingerprint.hpp"

namespace torch::comms::monitor {

// What runs beside a group's collectives: a send, a receive, a batch of them, a split, a call on a
// window.
struct NonCollectiveCall {
  char name[24] = {};
  uint64_t bytes = 0;
  uint64_t messages = 0;  // 0: no messages at all
  int32_t peer = -1;      // of a single message, or a signal
  uint32_t sends = 0;     // of the messages; 1: what it does goes to `peer`

  // "recv of 12 bytes from rank 1", "batch_op_issue of 3 messages, 36 bytes", "signal to rank 2".
  std::string format() const;
};

// Where a rank is in a group's operations, as plain data that travels. All by its own count.
struct RankProgress {
  uint64_t called = 0, finished = 0;  // numbers of the last collective that was called, that ended
  Fingerprint fingerprint = {};       // of the one that runs, else of the last one that ended
  uint64_t p2p_started = 0, p2p_finished = 0;
  NonCollectiveCall last_p2p = {};  // the last one
  uint32_t is_member = 1;           // 0: it has no such group, not yet or not any more
  uint32_t spare = 0;

  // "in barrier() as number 7, after number 6". `asides`: also what else it did.
  std::string format(bool asides) const;
};

// What came in when every rank of a group was asked where it is.
struct ProgressReport {
  int size = 1;         // of the group
  uint64_t number = 0;  // of the collective that did not end well; 0: it was none
  std::chrono::milliseconds waited{0};
  std::unordered_map<int, RankProgress> progress = {};    // by rank; of those that answered
  std::unordered_map<int, const char*> unreachable = {};  // by rank: why they could not be asked
  std::vector<int> closed = {};                           // of those that are gone: in good order

  // Who is behind and since when, who did not answer, and where everybody is: ranks in one place
  // are one entry, so that thousands of them stay readable. At most about 2,000 characters.
  std::string format() const;
  // The ranks that the others wait for, by this: those that are behind or silent; ascending.
  std::vector<int> culprits() const;
  // Those that neither answered nor are gone, ascending.
  std::vector<int> silent() const;
};

// "rank 3", "ranks 0-2, 4"; ascending, not empty. Long lists end in "and N more".
std::string format_rank_list(std::span<const int> ranks);

}  // namespace torch::comms::monitor
