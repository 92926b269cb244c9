#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/export.hpp>

namespace torch::comms {

inline constexpr std::chrono::milliseconds kStoreTimeout = std::chrono::seconds(60);

// Both: rank and size come from the launcher's variables; the result is a PrefixStore and has
// `timeout` as its own. Throw CommError as new_comm does, at most one second after `timeout`.

// The store at MASTER_ADDR:MASTER_PORT under `prefix`. Rank 0 serves it, as long as somebody there
// holds it, unless the launcher does; the others connect. A single rank gets one in memory, the
// same each time, whose timeout is the last that was given.
TC_API c10::intrusive_ptr<c10d::Store> createPrefixStore(
    const std::string& prefix, std::chrono::milliseconds timeout = kStoreTimeout);

// A new store under `prefix`, served by rank 0 on a free port and announced through
// `bootstrap_store`, which is not needed afterwards. Collective.
TC_API c10::intrusive_ptr<c10d::Store> dupPrefixStore(
    const std::string& prefix, const c10::intrusive_ptr<c10d::Store>& bootstrap_store,
    std::chrono::milliseconds timeout = kStoreTimeout);

}  // namespace torch::comms
