#pragma once

#include <cstdint>

namespace torch::comms::ctran::kernels {

// The kind of the messages of a launch; its kernel has the code for this kind alone.
enum class MessageKind : uint8_t {
  kDefault,
  kZeroCopy,  // some messages offer or request zero-copy
  kLean,      // LL128 of whole vectors; peers see no difference
};

}  // namespace torch::comms::ctran::kernels
