#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torchcomms/base/export.hpp>
#include <torchcomms/capabilities.hpp>
#include <torchcomms/options.hpp>

// Functions that the backends for CPU tensors share.
namespace torch::comms {

// Returns: capabilities with every operation except windows, for every dtype that holds values (not
// quantized, not bits).
TC_API Capabilities cpu_capabilities();

// Returns: cpu_capabilities() with staging of GPU tensors: see core/staging/staging.hpp.
TC_API Capabilities staged_capabilities();

// Returns: `timeout`, or kDefaultTimeout if none was given.
TC_API std::chrono::milliseconds timeout_or_default(std::chrono::milliseconds timeout);
// Returns: how long a split with these options waits for its members; kNoTimeout if the options
// have no timeout of their own. In that case the timeout of the parent applies.
TC_API std::chrono::milliseconds split_timeout(const CommOptions& options);
// Returns: the identity of a communicator of these ranks of `parent`: see
// BackendDiagnostics::comm_identity(). The members use a `number` that no other split with one of
// them has.
TC_API uint64_t split_identity(uint64_t parent, const std::vector<int>& ranks, uint64_t number);
// Returns: the name of the communicator that split() creates for `ranks` (at least one) from the
// name `name`.
TC_API std::string split_comm_name(const std::string& name, const std::vector<int>& ranks);

}  // namespace torch::comms
