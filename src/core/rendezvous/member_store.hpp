#pragma once

#include <cstdint>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/error.hpp>
#include <torchcomms/options.hpp>

#include "bootstrap/timeout.hpp"
#include "core/rendezvous/init_handle.hpp"

namespace torch::comms {

// The store that a member of a reconfigurable communicator contributes. The members meet at the
// store of the first one.

// Opens the store and writes its address into `self`. The store is:
// - options.store, below all its prefixes if it is a TCPStore;
// - for a job of size 1, a TCPStore on a free port, which this process serves until the last
//   reference is gone;
// - otherwise the store at MASTER_ADDR:MASTER_PORT.
// A store without an address gets a key that says that this member uses it: see
// require_reachable_store().
// Throws: CommError: kInvalidArgument that names what to set, kTimeout, kResourceExhausted.
c10::intrusive_ptr<c10d::Store> open_member_store(const std::string& name,
                                                  const CommOptions& options, InitHandleInfo& self);

// Checks that all members can reach the store of the first one. `store` is the store of this
// member.
// Blocks: at most half a second.
// Throws: CommError(kInvalidArgument) with `context` if a member cannot reach it.
void require_reachable_store(const ReconfigureMembers& members,
                             const c10::intrusive_ptr<c10d::Store>& store, const Context& context);

// Connects to the store of another member, by 127.0.0.1 if both are on one host, unless this
// process is connected already. `timeout` becomes the store's own timeout.
// Throws: CommError with `context`: kTimeout, kPeerFailed. A member serves its store before its
// handle exists. If its host refuses the connection, the member has ended, and the call throws
// kPeerFailed at once.
c10::intrusive_ptr<c10d::Store> join_member_store(const InitHandleInfo& member,
                                                  std::chrono::milliseconds timeout,
                                                  bootstrap::Deadline deadline,
                                                  const Context& context);

}  // namespace torch::comms
