#pragma once

#include <utility>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// {rank, size} of this process, from the launcher's variables. Reads the environment at each call.
// Throws CommError(kInvalidArgument) naming what was looked at, or the variable and its text.
TC_API std::pair<int, int> query_ranksize();

}  // namespace torch::comms
