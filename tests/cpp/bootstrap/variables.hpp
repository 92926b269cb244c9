#pragma once

#include <map>
#include <optional>
#include <string>

#include "bootstrap/launcher.hpp"

using Variables = std::map<std::string, std::string>;

inline torch::comms::bootstrap::EnvLookup lookup_in(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto row = variables.find(name);
    if (row == variables.end()) return std::nullopt;
    return row->second;
  };
}
