#pragma once

#include <torchcomms/options.hpp>

#include "ctran/team/device_team.hpp"

namespace torch::comms::ctran {

// Parses hint `ctran::workspace` or `ncclx::workspace`, else TORCHCOMM_KERNELS_WORKSPACE: "auto"
// (the default), "whole" or "growing".
// Throws: CommError(kInvalidArgument) without context.
DeviceTeam::WorkspaceExtent parse_workspace_extent(const Hints& hints);

}  // namespace torch::comms::ctran
