#pragma once

#include <cstdint>

namespace torch::comms::ctran::kernels {

// What the messages of a launch are, and what its kernel so has code for.
enum class MessageKind : uint8_t {
  kDefault,
  kZeroCopy,  // some have a place, or ask
  kLean,      // lines of whole vectors; to the peer it makes no difference
};

}  // namespace torch::comms::ctran::kernels
