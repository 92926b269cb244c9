#pragma once

#include <cstddef>
#include <string>

#include <torchcomms/base/error.hpp>

namespace torch::comms {

// A name is part of keys in the store, which c10d's TCPStore caps at 8192 bytes, and of what is
// written about the communicator.
inline constexpr size_t kMaxNameBytes = 1024;  // bytes

// Throws CommError(kInvalidArgument), with `context`, for a longer name of a communicator.
void require_name_length(const std::string& name, const Context& context);

}  // namespace torch::comms
