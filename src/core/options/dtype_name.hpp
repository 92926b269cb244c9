#pragma once

#include <string>

#include <c10/core/ScalarType.h>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// torch's own name of a dtype, "float32" or "bfloat16": the one spelling in errors, descriptions
// and records. The flight recorder and the call log, whose formats are others', have words of their
// own.
TC_API const std::string& dtype_name(c10::ScalarType dtype);

}  // namespace torch::comms
