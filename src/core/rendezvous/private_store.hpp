#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/error.hpp>

#include "bootstrap/key_value_store.hpp"
#include "bootstrap/timeout.hpp"

namespace torch::comms {

// A TCPStore in the process of rank 0 that only the ranks of one communicator use.
struct PrivateStore {
  c10::intrusive_ptr<c10d::Store> store;
  std::string address;  // "tcp://10.0.0.1:41234", as other hosts reach it
};

// Called by rank 0: serves a TCPStore on a free port and publishes it in `rendezvous_store` under
// `key`. Ranks on the same host reach it by 127.0.0.1, all others by own_address(hint). All
// communicators of a process share one server and one connection to it. `scope` is the key prefix
// of this communicator, equal on all ranks. If serving fails, the peer ranks get the reason.
PrivateStore publish_private_store(bootstrap::KeyValueStore& rendezvous_store,
                                   const std::string& key, const std::string& scope,
                                   const std::string& hint, std::chrono::milliseconds timeout,
                                   bootstrap::Deadline deadline, const Context& context);

// Called by the peer ranks: connects to the store that rank 0 has published, unless this process is
// connected already.
PrivateStore join_private_store(bootstrap::KeyValueStore& rendezvous_store, const std::string& key,
                                const std::string& scope, std::chrono::milliseconds timeout,
                                bootstrap::Deadline deadline, const Context& context);

// Called by every rank, on its connection `own` to the private store. It returns when all `size`
// ranks have connected to it and have called `release_rendezvous`, which releases the store they
// met on. After that no rank needs the first store. Rank 0, which serves `own`, returns last.
// Throws: on all ranks that connected, CommError(kTimeout) with the ranks that did not.
void switch_to_private_store(bootstrap::KeyValueStore& own, int rank, int size,
                             const bootstrap::NamedTimeout& limit, bootstrap::Deadline deadline,
                             const std::function<void()>& release_rendezvous);

}  // namespace torch::comms
