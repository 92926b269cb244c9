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

// What one rank passes to wait_for_all_ranks().
struct ArrivalBarrierParams {
  std::string key_scope;  // prefix of all keys; equal on all ranks
  std::string name;       // the communicator's name
  int rank = 0;
  int size = 1;
  std::string
      process_description;   // "process 123 on host a": how other ranks' errors name this one
  std::string backend = {};  // requested by this rank; empty: none
  NamedTimeout timeout;      // for error texts
  Deadline deadline;         // when the wait fails; the caller chooses the start
  // Called once, on one of the ranks, if ranks are still missing after `report_after`. Also gets
  // the text of a failed prepare().
  std::function<void(const std::string& text)> report = {};
  std::chrono::milliseconds report_after = std::chrono::seconds(30);
  // Called repeatedly while this rank waits, between reads of the store; it may block for a while.
  // If it returns a text, the attempt ends as a mismatch on all ranks. Without it, the rank waits
  // in one blocking read of the store.
  std::function<std::optional<std::string>()> conflict_check = {};
  // Acquires what this rank needs to take part, before it counts as arrived. A later attempt calls
  // it again. A CommError of it goes to `report`, and is thrown once the attempt has ended. The
  // peers raise kPeerFailed.
  std::function<void()> prepare = {};
};

// What wait_for_all_ranks() returns.
struct ArrivalBarrierResult {
  std::string key_prefix;  // of keys that only this communicator uses
  int64_t attempt = 0;    // how many earlier attempts at this name the store saw, successful or not
  uint64_t identity = 0;  // random; equal on all ranks of this communicator only
};

// Waits until all `size` ranks have arrived, each exactly once, with the same size and backend.
// Each rank sends a constant number of messages. On failure, one rank searches for the missing or
// differing ranks and publishes the result.
//
// The same name may be used again on the same store at any time. Every try is an attempt with its
// own keys; the store numbers the attempts. An attempt ends once, with the first verdict written to
// it. Ranks that arrive later take the next attempt. So a failed attempt leaves nothing behind that
// disturbs a retry, and two communicators never share a key.
//
// Blocks: until all ranks have arrived or the attempt has failed. Rank 0, whose process often
// serves the store, raises errors up to 1 s later, so that the peers can read them first.
// Throws: CommError, on every rank that takes part:
// - kTimeout: the deadline of some rank passed. The text names the missing ranks, the rank whose
//   timeout it was, and what to raise.
// - kMismatch: two sizes, or one rank twice; the text names both. Also if a conflict_check() found
//   a conflict, or if the ranks request different backends.
// - kPeerFailed: a rank left early, or the store is lost.
ArrivalBarrierResult wait_for_all_ranks(KeyValueStore& store, const ArrivalBarrierParams& self);

}  // namespace torch::comms::bootstrap
