#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/error.hpp>

#include "bootstrap/key_value_store.hpp"
#include "bootstrap/timeout.hpp"

namespace torch::comms {

struct PrivateStore {
  c10::intrusive_ptr<c10d::Store> store;
  std::string address;  // "tcp://10.0.0.1:41234", as other hosts reach it
};

// Rank 0: serves a TCPStore on a free port and publishes it by `key` of `meeting`. Peer ranks reach
// it by 127.0.0.1 from the same host, else by own_address(hint). All communicators of a process
// share one server and one connection to it; `scope` is the prefix of this one's keys, equal on all
// ranks. If that fails, the peer ranks learn why.
PrivateStore publish_private_store(bootstrap::KeyValueStore& meeting, const std::string& key,
                                   const std::string& scope, const std::string& hint,
                                   std::chrono::milliseconds timeout, bootstrap::Deadline deadline,
                                   const Context& context);

// The peer ranks: connects to the store that rank 0 has published, unless this process is
// connected.
// Throws: CommError with `context`: kTimeout, kPeerFailed.
PrivateStore join_private_store(bootstrap::KeyValueStore& meeting, const std::string& key,
                                const std::string& scope, std::chrono::milliseconds timeout,
                                bootstrap::Deadline deadline, const Context& context);

// Every rank, on its connection `own` to that store: returns when all `size` ranks have connected
// to it and have then called `let_go`, which releases what they met on; so nobody can still need
// that, on any rank. Rank 0, which serves `own`, returns last. Throws CommError, on all that came:
// kTimeout naming the ranks that did not connect.
void switch_to_private_store(bootstrap::KeyValueStore& own, int rank, int size,
                             const bootstrap::NamedTimeout& limit, bootstrap::Deadline deadline,
                             const std::function<void()>& let_go);

}  // namespace torch::comms
