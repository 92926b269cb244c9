#include "backends/kernels/room.hpp"

#include <torchcomms/base/error.hpp>

#include "core/hint_table.hpp"

namespace torch::comms::ctran {

Team::Room room_wish(const Hints& hints) {
  for (const char* const name : {hint::kWorkspace.name, hint::kWorkspace.other}) {
    const auto found = hints.find(name);
    if (found == hints.end()) continue;
    if (found->second == "whole") return Team::Room::kWhole;
    if (found->second == "growing") return Team::Room::kFirstPart;
    throw CommError(Errc::kInvalidArgument, "hint " + found->first + " is '" + found->second +
                                                "', allowed are whole and growing");
  }
  return Team::Room::kWhole;
}

}  // namespace torch::comms::ctran
