#pragma once

#include "standin/kernels/launch.hpp"

namespace torch::comms::standin {

// One step beside a window.
void run(Launch& launch, const kernels::KernelRmaOperation& step);

}  // namespace torch::comms::standin
