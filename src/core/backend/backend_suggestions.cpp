#include "core/backend/backend_suggestions.hpp"

#include <vector>

#include <torchcomms/factory.hpp>

namespace torch::comms {

std::string backends_supporting(const std::function<bool(const Capabilities&)>& can) {
  std::vector<std::string> names;
  for (const auto& [name, capabilities] : TorchCommFactory::get().installed())
    // A backend that does not check arguments says nothing about what it can do.
    if (capabilities.strict_arguments && can(capabilities)) names.push_back(name);
  if (names.empty()) return "";
  std::string text = names.size() == 1 ? "; backend " : "; backends ";
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += "'" + names[i] + "'";
  }
  return text + " can";
}

}  // namespace torch::comms
