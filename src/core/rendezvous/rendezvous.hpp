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

// What a backend needs to connect.
struct Rendezvous {
  int rank;
  int size;
  std::string source;  // "torchrun (RANK=0, WORLD_SIZE=4)"
  // This communicator's alone; lives as long as somebody holds it, but without hint
  // persistent_store its server is in rank 0's process: the ranks still need a barrier between
  // their last use and the end of rank 0. Its timeout is options.timeout. Any number of threads may
  // wait on it: see SharedStore.
  c10::intrusive_ptr<c10d::Store> store;
  std::vector<TorchCommBackend::InitPhase>
      phases;           // "discover", "store", "arrive", "begin", "private store", "leave"
  std::string address;  // of `store`, for error texts
  // What is left of the start-up for connecting, and how that limit is named.
  bootstrap::NamedTimeout timeout;
  bootstrap::Deadline deadline;
  std::string op = "new_comm";    // what the ranks met for: for error texts
  bool is_store_private = false;  // rank 0's process serves `store`, for these ranks alone
  uint64_t identity = 0;          // equal on all ranks that met, and on no others
};

// What a backend does while the start-up is under way, of several ranks that meet in a store.
struct OverlappedConnect {
  // Gets what this rank needs to take part; may run again, where the store comes back. What it
  // throws is thrown as it is, and is the others' kPeerFailed.
  std::function<void(int rank)> prepare;
  // Of rank 0, when all are here: what all begin with. "": nobody begins.
  std::function<std::string()> make_id;
  // Begins with that, while the rest of the start-up goes on. Throws nothing.
  std::function<void(int rank, int size, const std::string& word)> start;
};

// Finds rank and size, reaches the store, waits for all ranks and gives them a store of their own.
// Collective.
//
// The store: options.store, else the TCPStore at MASTER_ADDR:MASTER_PORT (or where the job's
// variables say), which rank 0 serves unless TORCHELASTIC_USE_AGENT_STORE says that the launcher
// does. It is released before this returns, on all ranks, so that the caller may close or reopen
// it; with hint persistent_store=true a given store stays in use instead (under a prefix) and no
// private one is opened. A single rank without a store needs none. The same name may be used any
// number of times, also on one store.
//
// Throws CommError naming the phase, the address, the missing ranks, the limit and how to raise it,
// at most one second after the limit: TORCHCOMM_STORE_TIMEOUT_SECONDS for reaching the store,
// TORCHCOMM_INIT_TIMEOUT_SECONDS for the rest, options.timeout for both together where they are
// unset.
//
// `backend`: which one this rank asks for. Where it is not the same on all, kSizeMismatch names who
// asks for which; empty: none.
TC_API Rendezvous rendezvous(const std::string& comm_name, const CommOptions& options,
                             std::string_view backend = {}, const OverlappedConnect& early = {});

// The same with rank and size known, for the members of a split (which agree on `comm_name`, and
// pass the parent's store) and for tests with threads as ranks. `doubt`: see
// bootstrap::ArrivalBarrierParams; it may throw, too. `op`: what they call, whose timeout
// options.timeout is.
TC_API Rendezvous rendezvous(const bootstrap::LaunchInfo& launch, const std::string& comm_name,
                             const CommOptions& options, std::string_view backend = {},
                             std::function<std::optional<std::string>()> doubt = {},
                             const std::string& op = "new_comm",
                             const OverlappedConnect& early = {});

// For ranks that all give up alike after they met: returns when all have read what they needed, on
// rank 0, which may serve the store, last. Never throws CommError.
TC_API void finish_failed_rendezvous(StoreKeyValue& store, const Rendezvous& met);

// The limit of that start-up, but for reaching the store.
bootstrap::NamedTimeout init_timeout(const CommOptions& options);

// "process 123 on host a".
std::string format_process();

}  // namespace torch::comms
