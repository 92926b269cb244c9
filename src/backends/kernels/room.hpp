#pragma once

#include <torchcomms/options.hpp>

#include "ctran/device/device_team.hpp"

namespace torch::comms::ctran {

// Hint `ctran::workspace` or `ncclx::workspace`, else TORCHCOMM_KERNELS_WORKSPACE: "auto", which it
// is where neither is given, "whole" or "growing". Throws CommError(kInvalidArgument) without
// context.
DeviceTeam::WorkspaceExtent room_wish(const Hints& hints);

}  // namespace torch::comms::ctran
