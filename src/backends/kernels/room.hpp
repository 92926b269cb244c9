#pragma once

#include <torchcomms/options.hpp>

#include "ctran/device/team.hpp"

namespace torch::comms::ctran {

// Hint `ctran::workspace` or `ncclx::workspace`: "whole", which it is where it is not given, or
// "growing". Throws CommError(kInvalidArgument) without context.
Team::Room room_wish(const Hints& hints);

}  // namespace torch::comms::ctran
