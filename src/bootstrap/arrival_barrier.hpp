#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <torchcomms/base/error.hpp>

#include "bootstrap/key_value_store.hpp"
#include "bootstrap/timeout.hpp"

namespace torch::comms::bootstrap {

// One rank's part in "everybody is here".
struct ArrivalBarrierParams {
  std::string key_scope;  // every key starts with it; equal on all ranks
  std::string name;       // of the communicator
  int rank = 0;
  int size = 1;
  std::string
      process_description;   // "process 123 on host a": how other ranks' errors name this one
  std::string backend = {};  // that this rank asks for; empty: none
  NamedTimeout timeout;      // for the texts
  Deadline deadline;         // when to give up: the limit, counted from where the caller wants
  // Called once, by one of the ranks, when the others are still missing after `patience`.
  std::function<void(const std::string& text)> report = {};
  std::chrono::milliseconds report_after = std::chrono::seconds(30);
  // Asked again and again, between looks at the store, while this rank waits, and takes its time: a
  // text ends the attempt, for all, as a mismatch. Without it the store wakes this rank.
  std::function<std::optional<std::string>()> conflict_check = {};
  // Gets what this rank needs to take part, before it counts as here. May run again in a later
  // attempt. A CommError of it is told by `notice`, thrown once all are here or too late, and is
  // the others' kPeerFailed.
  std::function<void()> prepare = {};
};

struct ArrivalBarrierResult {
  std::string key_prefix;  // prefix that only this creation of this communicator uses
  int64_t attempt = 0;     // how many tries at this name, good or bad, the store saw before
  uint64_t identity = 0;   // equal on all ranks that met; nobody else draws the same number
};

// Returns when all `size` ranks are here, each exactly once, with the same size and backend. A
// constant number of messages a rank (the failing case: one rank looks for those that are missing
// or differ, and tells the others).
//
// The same name may be used again on the same store, at any time: every try is an attempt with keys
// of its own, and attempts are numbered by the store. An attempt ends once, by the first verdict
// written to it: "go", or why not; whoever comes later takes the next one. So a failed try leaves
// nothing behind that a retry could stumble over, and two communicators never share a key.
//
// Throws CommError, on every rank that takes part:
// - kTimeout: some rank's limit passed; names the missing ranks, whose limit it was, what to raise;
// - kSizeMismatch: two sizes, or one rank twice, naming both; or a rank has doubts; or all are here
// and
//   ask for different backends, naming who asks for which;
// - kPeerFailed: a rank left early, or the store is gone.
// Rank 0, whose process often serves the store, raises them up to a second later: when the others
// have read them, too.
ArrivalBarrierResult wait_for_all_ranks(KeyValueStore& store, const ArrivalBarrierParams& self);

}  // namespace torch::comms::bootstrap
