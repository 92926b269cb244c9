#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torchcomms/base/export.hpp>
#include <torchcomms/capabilities.hpp>
#include <torchcomms/options.hpp>

// What the backends for CPU tensors have in common.
namespace torch::comms {

// Every operation but windows, on every dtype that holds values (not quantised, not bits).
TC_API Capabilities cpu_capabilities();

// The same for a backend whose communicators may be on a GPU: see core/staging/staging.hpp.
TC_API Capabilities staged_capabilities();

// `timeout`, or the library's default where none was given.
TC_API std::chrono::milliseconds timeout_or_default(std::chrono::milliseconds timeout);
// How long a split with these options waits for its members; kNoTimeout where no timeout was given,
// so that theirs is the environment's: then the parent's limit holds.
TC_API std::chrono::milliseconds split_timeout(const CommOptions& options);
// Of a communicator of these ranks of `parent`, whose members give it a `number` that no other
// split with one of them has: see BackendDiagnostics::comm_identity().
TC_API uint64_t split_identity(uint64_t parent, const std::vector<int>& ranks, uint64_t number);
// What the communicator of these ranks, at least one, is called, whose next_split() is given
// `name`.
TC_API std::string split_comm_name(const std::string& name, const std::vector<int>& ranks);

}  // namespace torch::comms
