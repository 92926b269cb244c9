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

// The result of rendezvous(), with which a backend connects the ranks. Reconfiguration makes it,
// too.
struct Rendezvous {
  int rank;
  int size;
  std::string source;  // "torchrun (RANK=0, WORLD_SIZE=4)"
  // A store whose keys only this communicator uses. The object lives as long as a reference exists.
  // If is_store_private, its server is in rank 0's process, so the ranks need a barrier between
  // their last use of it and the end of rank 0. Its timeout is options.timeout. Any number of
  // threads may wait on it: see SharedStore.
  c10::intrusive_ptr<c10d::Store> store;
  std::vector<TorchCommBackend::InitPhase>
      phases;           // "discover", "store", "arrive", "begin", "private store", "leave"
  std::string address;  // of `store`, for error texts
  // The timeout for connecting with its setting, and the deadline of the start-up.
  bootstrap::NamedTimeout timeout;
  bootstrap::Deadline deadline;
  std::string op = "new_comm";    // the call that creates the communicator, for error texts
  bool is_store_private = false;  // this library serves `store` in rank 0's process
  uint64_t identity = 0;          // equal on all ranks of this communicator, and unique to it
};

// The callbacks of a backend that connects during the start-up. They run on the thread of
// rendezvous(), with two or more ranks only.
struct OverlappedConnect {
  // Acquires what this rank needs to connect. It may run again, for another attempt or after the
  // store was lost and came back. rendezvous() rethrows its exception unchanged, once all ranks
  // have arrived or the attempt has failed; the peers throw kPeerFailed.
  std::function<void(int rank)> prepare;
  // Runs on rank 0 when all ranks have arrived, and returns the id with which they connect. An
  // empty id means that no rank calls start(). It must not throw: the peers would wait for the id
  // until their timeout.
  std::function<std::string()> make_id;
  // Starts to connect with that id, `connect_id`, while the start-up continues. It must not throw.
  // If rendezvous() throws later, the caller must end the connect.
  std::function<void(int rank, int size, const std::string& connect_id)> start;
};

// Finds rank and size, opens the store, waits for all ranks, and opens a private store for them in
// rank 0's process. All ranks must call it.
//
// The first store is options.store, otherwise the TCPStore at MASTER_ADDR:MASTER_PORT (or at the
// address in the job's variables). Rank 0 serves the latter unless TORCHELASTIC_USE_AGENT_STORE
// says that the launcher does. All ranks release the first store before any rank returns, so the
// caller may close or reopen it. With hint persistent_store=true a given store stays in use
// instead, under a prefix, and no private store is opened. Otherwise a single rank gets a store
// in its own memory. The same name may be used any number of times, also on one store.
//
// `backend`: the backend that this rank asks for; empty: none. If the ranks differ, kMismatch names
// which rank asks for which.
//
// Blocks: until all ranks have called it, but normally at most one second beyond the timeout. The
// timeout is TORCHCOMM_STORE_TIMEOUT_SECONDS for opening the store, and
// TORCHCOMM_INIT_TIMEOUT_SECONDS for the rest. If one is unset, options.timeout applies to that
// part; if both are, it applies to both parts together.
// Throws: CommError with the phase, the address, the missing ranks, the timeout and how to raise
// it.
// - kInvalidArgument: rank, size, a timeout or the master address is unknown or invalid.
// - kTimeout: ranks are missing, or the store does not answer.
// - kMismatch: the ranks differ in size or backend, or one rank arrived twice.
// - kPeerFailed: a rank left early, rank 0 cannot open the private store, or a store is lost.
// - kResourceExhausted, kSystem: the store cannot be opened or used.
// It also throws the exception of `overlapped_connect.prepare`, and that of the host language's
// interrupt.
TC_API Rendezvous rendezvous(const std::string& comm_name, const CommOptions& options,
                             std::string_view backend = {},
                             const OverlappedConnect& overlapped_connect = {});

// Runs rendezvous() with known rank and size. Members of a split use it; they agree on `comm_name`
// and pass the parent's store. Tests whose ranks are threads use it, too. `conflict_check`: see
// bootstrap::ArrivalBarrierParams::conflict_check; an exception of it ends the wait, and the peers
// throw kPeerFailed. `op`: the name of the call that creates the communicator, for error texts.
TC_API Rendezvous rendezvous(const bootstrap::LaunchInfo& launch, const std::string& comm_name,
                             const CommOptions& options, std::string_view backend = {},
                             std::function<std::optional<std::string>()> conflict_check = {},
                             const std::string& op = "new_comm",
                             const OverlappedConnect& overlapped_connect = {});

// Keeps the store alive when all ranks fail after rendezvous(). Every rank calls it once it has
// read what it needs from `store`. Rank 0, whose process may serve the store, returns when all
// ranks have called it; the other ranks return at once.
// Blocks: rank 0, at most until the deadline of `result`.
// Throws: Interrupted; a CommError is only logged.
TC_API void finish_failed_rendezvous(StoreKeyValue& store, const Rendezvous& result);

// Returns: the timeout of the start-up after the store is open: TORCHCOMM_INIT_TIMEOUT_SECONDS,
// otherwise options.timeout, otherwise kDefaultTimeout.
// Throws: CommError(kInvalidArgument) if the variable is invalid.
bootstrap::NamedTimeout init_timeout(const CommOptions& options);

// Returns: a text such as "process 123 on host a".
std::string format_process();

}  // namespace torch::comms
