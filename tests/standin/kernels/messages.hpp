#pragma once

#include <span>

#include "standin/kernels/launch.hpp"

namespace torch::comms::standin {

// Sends and receives all of them, on one rank. Those to or from different ranks go on side by side.
void run(Launch& launch, std::span<const kernels::KernelMessage> messages);
// How many messages this process has written straight to their places.
int64_t zero_copy_messages() noexcept;

}  // namespace torch::comms::standin
