#pragma once

#include <cstddef>
#include <string>

#include <torchcomms/base/error.hpp>

namespace torch::comms {

// The longest name of a communicator. The name is part of store keys, which c10d's TCPStore limits
// to 8192 bytes, and of records.
inline constexpr size_t kMaxNameBytes = 1024;

// Throws: CommError(kInvalidArgument) with `context` for a longer name.
void require_name_length(const std::string& name, const Context& context);

}  // namespace torch::comms
