#pragma once

#include "ctran/kernels/library.hpp"

namespace torch::comms::standin {

namespace kernels = ctran::kernels;

// What the kernels of a HostCall do.
void post(const kernels::HostCall& call);
void await(const kernels::HostCall& call);
void seal(const kernels::HostCall& call);

}  // namespace torch::comms::standin
