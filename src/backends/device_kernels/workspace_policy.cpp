#include "backends/device_kernels/workspace_policy.hpp"

#include <string_view>

#include <torchcomms/base/error.hpp>

#include "base/os/env.hpp"
#include "core/options/hint_table.hpp"

namespace torch::comms::ctran {
namespace {

constexpr const char* kVariable = "TORCHCOMM_KERNELS_WORKSPACE";

DeviceTeam::WorkspaceExtent workspace_extent_of(const std::string& setting, std::string_view text) {
  if (text == "auto") return DeviceTeam::WorkspaceExtent::kDefault;
  if (text == "whole") return DeviceTeam::WorkspaceExtent::kFull;
  if (text == "growing") return DeviceTeam::WorkspaceExtent::kPartial;
  throw CommError(Errc::kInvalidArgument,
                  setting + " is '" + std::string(text) + "', allowed are auto, whole and growing");
}

}  // namespace

DeviceTeam::WorkspaceExtent parse_workspace_extent(const Hints& hints) {
  for (const char* const name : {hint::kWorkspace.name, hint::kWorkspace.alias})
    if (const auto found = hints.find(name); found != hints.end())
      return workspace_extent_of("hint " + found->first, found->second);
  const auto text = base::env_text(kVariable);
  return text ? workspace_extent_of(kVariable, *text) : DeviceTeam::WorkspaceExtent::kDefault;
}

}  // namespace torch::comms::ctran
