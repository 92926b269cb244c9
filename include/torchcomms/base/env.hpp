#pragma once

#include <string>
#include <string_view>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Parses a boolean: `1`, `true`, `yes`, `y` or `0`, `false`, `no`, `n`, in any case.
// Throws: CommError(kInvalidArgument) that quotes the text.
TC_API bool string_to_bool(std::string_view text);

// Reads the environment variable `key` as T: bool, int, float, double, uint64_t or std::string.
// Each call reads the environment again. White space around the value is dropped; a number must
// parse as a whole.
// Returns: the value, or `fallback` if the variable is unset or empty.
// Throws: CommError(kInvalidArgument) with the variable, its text and what is allowed.
template <class T>
TC_API T env_to_value(const std::string& key, const T& fallback);

}  // namespace torch::comms
