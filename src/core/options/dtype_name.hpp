#pragma once

#include <string>

#include <c10/core/ScalarType.h>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Returns: torch's name of a dtype, such as "float32" or "bfloat16"; "undefined" for Undefined and
// for values that torch does not know. Errors, descriptions and records use this spelling. The
// flight recorder and the call log have external formats with their own names.
// Lifetime: until static destruction.
TC_API const std::string& dtype_name(c10::ScalarType dtype);

}  // namespace torch::comms
