#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/error.hpp>

#include "bootstrap/launcher.hpp"
#include "bootstrap/master_address.hpp"
#include "bootstrap/timeout.hpp"

namespace torch::comms {

// The store at MASTER_ADDR:MASTER_PORT, or at the address in the job's variables.
struct MasterStore {
  c10::intrusive_ptr<c10d::Store> store;
  bootstrap::MasterAddress master;
  std::string key_prefix;  // prefix of all keys, which separates jobs and restarts of one job
  bool is_served_by_rank0;
};

// Opens the store of the job. Rank 0 serves it unless TORCHELASTIC_USE_AGENT_STORE says that the
// launcher does; the other ranks connect. `timeout` becomes the store's own timeout.
// Throws: CommError with `context`: kInvalidArgument that names what to set, and the errors of
// serve_store() and join_store().
MasterStore open_master_store(const bootstrap::LaunchInfo& launch,
                              std::chrono::milliseconds timeout, bootstrap::Deadline deadline,
                              const Context& context);

// Returns: a sentence for rank 0's errors if `master` is not an address of this host; otherwise an
// empty text.
// Blocks: for a query of a name server, if `master` is a name.
std::string check_master_address(const bootstrap::MasterAddress& master);

}  // namespace torch::comms
