#pragma once

#include <string>
#include <string_view>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Parses a boolean: `1`, `true`, `yes`, `y` or `0`, `false`, `no`, `n`, in upper or lower case.
// White space around the text is ignored.
// Throws: CommError(kInvalidArgument) that quotes the text.
TC_API bool string_to_bool(std::string_view text);

// Reads the environment variable `key` as T: bool, int, float, double, uint64_t or std::string.
// Each call reads the environment again. White space around the value is ignored; the rest must be
// one number.
// Returns: the value, or `fallback` if the variable is unset, empty or only white space.
// Throws: CommError(kInvalidArgument) with the variable, its text and what is allowed.
template <class T>
TC_API T env_to_value(const std::string& key, const T& fallback);

}  // namespace torch::comms
