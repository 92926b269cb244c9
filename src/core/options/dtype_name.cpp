#include "core/options/dtype_name.hpp"

#include <algorithm>
#include <exception>
#include <vector>

namespace torch::comms {
namespace {

std::string find_name(c10::ScalarType dtype) {
  try {
    return std::string(c10::getDtypeNames(dtype).first);
  } catch (const std::exception&) {  // some dtypes have no Python name
    return c10::toString(dtype);
  }
}

}  // namespace

const std::string& dtype_name(c10::ScalarType dtype) {
  constexpr auto kUndefined = static_cast<size_t>(c10::ScalarType::Undefined);
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found;
    found.reserve(kUndefined + 1);
    for (size_t i = 0; i < kUndefined; ++i)
      found.push_back(find_name(static_cast<c10::ScalarType>(i)));
    found.emplace_back("undefined");
    return found;
  }();
  return names[std::min(static_cast<size_t>(dtype), kUndefined)];
}

}  // namespace torch::comms
