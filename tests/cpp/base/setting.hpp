#pragma once

#include <cstdint>
#include <cstdlib>

namespace torch::comms::test {

// A number that a variable sets for a test, as `./dev check` does for longer runs.
inline uint64_t setting(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace torch::comms::test
