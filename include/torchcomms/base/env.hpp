#pragma once

#include <string>
#include <string_view>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// `1 true yes y` / `0 false no n`, in any case. Throws CommError(kInvalidArgument) naming the text.
TC_API bool string_to_bool(std::string_view text);

// The variable `key` as T (bool, int, float, double, uint64_t, std::string), or `fallback` where it
// is unset or empty. Read at each use; surrounding white space is dropped. Throws
// CommError(kInvalidArgument) naming variable, text and what is allowed; numbers must parse whole.
template <class T>
TC_API T env_to_value(const std::string& key, const T& fallback);

}  // namespace torch::comms
