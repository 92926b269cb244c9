#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/backend.hpp>
#include <torchcomms/base/export.hpp>
#include <torchcomms/options.hpp>

#include "bootstrap/launcher.hpp"
#include "bootstrap/timeout.hpp"

namespace torch::comms {

class StoreKeyValue;

// The result of rendezvous(): what a backend needs to connect.
struct Rendezvous {
  int rank;
  int size;
  std::string source;  // "torchrun (RANK=0, WORLD_SIZE=4)"
  // The store of this communicator only. The object lives as long as a reference exists, but
  // without hint persistent_store its server is in rank 0's process. The ranks therefore need a
  // barrier between their last use and the end of rank 0. Its timeout is options.timeout. Any
  // number of threads may wait on it: see SharedStore.
  c10::intrusive_ptr<c10d::Store> store;
  std::vector<TorchCommBackend::InitPhase>
      phases;           // "discover", "store", "arrive", "begin", "private store", "leave"
  std::string address;  // of `store`, for error texts
  // The timeout for connecting with its setting, and the deadline of the start-up.
  bootstrap::NamedTimeout timeout;
  bootstrap::Deadline deadline;
  std::string op = "new_comm";    // the call in which the ranks met, for error texts
  bool is_store_private = false;  // rank 0's process serves `store` for these ranks only
  uint64_t identity = 0;          // equal on all ranks that met, and unique to them
};

// The callbacks of a backend that connects during the start-up, used with two or more ranks.
struct OverlappedConnect {
  // Acquires what this rank needs to connect. It may run again if the store was lost and came back.
  // Its exception leaves rendezvous() unchanged, and peers get kPeerFailed.
  std::function<void(int rank)> prepare;
  // Runs on rank 0 when all ranks are present, and returns the id with which they connect. An empty
  // id means that no rank connects.
  std::function<std::string()> make_id;
  // Starts to connect with that id while the start-up continues. It must not throw.
  std::function<void(int rank, int size, const std::string& word)> start;
};

// Finds rank and size, opens the store, waits for all ranks, and gives them a store of their own.
// All ranks must call it.
//
// The store is options.store, otherwise the TCPStore at MASTER_ADDR:MASTER_PORT (or at the address
// in the job's variables). Rank 0 serves that one unless TORCHELASTIC_USE_AGENT_STORE says that the
// launcher does. All ranks release it before this returns, so the caller may close or reopen it.
// With hint persistent_store=true a given store stays in use instead, under a prefix, and no
// private store is opened. A single rank without a store needs none. The same name may be used any
// number of times, also on one store.
//
// `backend`: the backend that this rank asks for; empty: none. If the ranks differ, kMismatch names
// which rank asks for which.
//
// Throws: CommError with the phase, the address, the missing ranks, the timeout and how to raise
// it, at most one second after the timeout. The timeout is TORCHCOMM_STORE_TIMEOUT_SECONDS for
// opening the store, and TORCHCOMM_INIT_TIMEOUT_SECONDS for the rest. If both are unset,
// options.timeout applies to both together.
TC_API Rendezvous rendezvous(const std::string& comm_name, const CommOptions& options,
                             std::string_view backend = {}, const OverlappedConnect& early = {});

// Runs rendezvous() with known rank and size. Members of a split use it, which agree on `comm_name`
// and pass the parent's store, and tests with threads as ranks. `doubt`: see
// bootstrap::ArrivalBarrierParams::conflict_check; it may throw. `op`: the call of the ranks, whose
// timeout is options.timeout.
TC_API Rendezvous rendezvous(const bootstrap::LaunchInfo& launch, const std::string& comm_name,
                             const CommOptions& options, std::string_view backend = {},
                             std::function<std::optional<std::string>()> doubt = {},
                             const std::string& op = "new_comm",
                             const OverlappedConnect& early = {});

// For ranks that all fail after they met: returns when all have read what they need. Rank 0, which
// may serve the store, returns last. It never throws CommError.
TC_API void finish_failed_rendezvous(StoreKeyValue& store, const Rendezvous& met);

// Returns: the timeout of the start-up after the store is open.
bootstrap::NamedTimeout init_timeout(const CommOptions& options);

// Returns: a text such as "process 123 on host a".
std::string format_process();

}  // namespace torch::comms
