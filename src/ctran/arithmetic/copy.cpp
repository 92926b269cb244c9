#include "ctran/arithmetic/copy.hpp"

#include <cstring>

namespace torch::comms::ctran {

void copy(void* into, const void* from, size_t bytes) noexcept {
  if (into == from || bytes == 0) return;
  std::memcpy(into, from, bytes);
}

}  // namespace torch::comms::ctran
