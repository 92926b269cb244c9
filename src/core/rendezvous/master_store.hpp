#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/error.hpp>

#include "bootstrap/launcher.hpp"
#include "bootstrap/master_address.hpp"
#include "bootstrap/timeout.hpp"

namespace torch::comms {

// The store at MASTER_ADDR:MASTER_PORT, or where the job's variables say.
struct MasterStore {
  c10::intrusive_ptr<c10d::Store> store;
  bootstrap::MasterAddress master;
  std::string key_prefix;  // keys must start with it: apart from other jobs and from earlier tries
                           // of this one
  bool is_served_by_rank0;
};

// Rank 0 serves, unless TORCHELASTIC_USE_AGENT_STORE says that the launcher does; the others
// connect. `timeout` becomes the store's own. Throws CommError with `context`: kInvalidArgument
// naming what to set, and those of serve_store, join_store.
MasterStore open_master_store(const bootstrap::LaunchInfo& launch,
                              std::chrono::milliseconds timeout, bootstrap::Deadline deadline,
                              const Context& context);

// A sentence for rank 0's errors if `master` is not an address of this host; else empty. May ask a
// name server.
std::string check_master_address(const bootstrap::MasterAddress& master);

}  // namespace torch::comms
