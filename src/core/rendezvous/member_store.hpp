#pragma once

#include <cstdint>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/error.hpp>
#include <torchcomms/options.hpp>

#include "bootstrap/timeout.hpp"
#include "core/rendezvous/init_handle.hpp"

namespace torch::comms {

// The store that a member of a reconfigurable communicator brings. Members meet at that of the
// first one.

// Finds the store and writes its address into `self`:
// - options.store, below all its prefixes if it is a TCPStore;
// - for a job of size 1, a TCPStore on a free port that this process serves until the last
//   reference is gone;
// - else the store at MASTER_ADDR:MASTER_PORT.
// A store without an address gets a key that says that this member uses it: see require_reachable.
// Throws CommError: kInvalidArgument naming what to set, kTimeout, kResourceExhausted.
c10::intrusive_ptr<c10d::Store> open_member_store(const std::string& name,
                                                  const CommOptions& options, InitHandleInfo& self);

// Throws CommError(kInvalidArgument) with `context` where a member cannot come to the store of the
// first one. `store`: that of this member. Blocks: half a second at most.
void require_reachable_store(const ReconfigureMembers& members,
                             const c10::intrusive_ptr<c10d::Store>& store, const Context& context);

// Connects to the store of another member, by 127.0.0.1 where both are on one host, unless this
// process is connected. `timeout` becomes the store's own.
// Throws CommError with `context`: kTimeout, kPeerFailed. A store that its member serves is there
// before the handle is: if its host refuses the connection, the member has ended, and this raises
// kPeerFailed at once.
c10::intrusive_ptr<c10d::Store> join_member_store(const InitHandleInfo& member,
                                                  std::chrono::milliseconds timeout,
                                                  bootstrap::Deadline deadline,
                                                  const Context& context);

}  // namespace torch::comms
