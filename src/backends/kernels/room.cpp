#include "backends/kernels/room.hpp"

#include <string_view>

#include <torchcomms/base/error.hpp>

#include "base/env.hpp"
#include "core/hint_table.hpp"

namespace torch::comms::ctran {
namespace {

constexpr const char* kVariable = "TORCHCOMM_KERNELS_WORKSPACE";

Team::Room room_of(const std::string& knob, std::string_view text) {
  if (text == "auto") return Team::Room::kUsual;
  if (text == "whole") return Team::Room::kWhole;
  if (text == "growing") return Team::Room::kFirstPart;
  throw CommError(Errc::kInvalidArgument,
                  knob + " is '" + std::string(text) + "', allowed are auto, whole and growing");
}

}  // namespace

Team::Room room_wish(const Hints& hints) {
  for (const char* const name : {hint::kWorkspace.name, hint::kWorkspace.other})
    if (const auto found = hints.find(name); found != hints.end())
      return room_of("hint " + found->first, found->second);
  const auto text = base::env_text(kVariable);
  return text ? room_of(kVariable, *text) : Team::Room::kUsual;
}

}  // namespace torch::comms::ctran
