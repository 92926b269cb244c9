#pragma once

#include "ctran/kernels/host/library.hpp"

namespace torch::comms::standin {

namespace kernels = ctran::kernels;

// What the kernels of a HostRingCall do.
void post(const kernels::HostRingCall& call);
void await(const kernels::HostRingCall& call);
void seal(const kernels::HostRingCall& call);

}  // namespace torch::comms::standin
