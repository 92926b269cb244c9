#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Two helpers that open a c10d store for the ranks of the job. Rank and size come from the
// launcher's variables. The result is a PrefixStore whose own timeout is `timeout`. Both functions
// throw CommError as new_comm() does, at most one second after `timeout`.
//
// The default timeout of these stores.
inline constexpr std::chrono::milliseconds kStoreTimeout = std::chrono::seconds(60);

// Opens the store at MASTER_ADDR:MASTER_PORT under `prefix`. Rank 0 serves it while a reference
// exists there, unless the launcher serves it; the other ranks connect. A job of one rank gets a
// store in memory, the same one each time, with the last timeout that was given.
TC_API c10::intrusive_ptr<c10d::Store> createPrefixStore(
    const std::string& prefix, std::chrono::milliseconds timeout = kStoreTimeout);

// Opens a new store under `prefix`, which rank 0 serves on a free port and announces through
// `bootstrap_store`. The bootstrap store is not needed afterwards. All ranks must call it.
TC_API c10::intrusive_ptr<c10d::Store> dupPrefixStore(
    const std::string& prefix, const c10::intrusive_ptr<c10d::Store>& bootstrap_store,
    std::chrono::milliseconds timeout = kStoreTimeout);

}  // namespace torch::comms
