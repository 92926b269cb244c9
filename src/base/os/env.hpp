#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include <torchcomms/base/env.hpp>

// The one place that reads the process environment. Variables are read at each use, surrounding
// white space is dropped, and an empty value counts as unset.
namespace torch::comms::base {

// A variable of ours: what the documentation, `--help` and the parser know about it.
struct EnvVar {
  const char* name;
  const char* type;          // "bool", "seconds", "int", "text", "path"
  const char* default_text;  // as text; "" where there is none
  const char* doc;           // one sentence
  // Of an "int": what is allowed.
  int64_t min_value = std::numeric_limits<int64_t>::min();
  int64_t max_value = std::numeric_limits<int64_t>::max();
};

// Every variable that the library reads, in order of the documentation.
TC_API std::span<const EnvVar> environment();

// The text of `name`, trimmed; nothing where it is unset or empty.
TC_API std::optional<std::string> env_text(const std::string& name);

// The text of `name` as it stands, untrimmed; nothing where it is unset. For the one variable whose
// contract says so.
TC_API std::optional<std::string> env_raw(const std::string& name);

// A limit in (decimal) seconds > 0 from variable `name`, to the nearest millisecond but 0; nothing
// where it is unset.
// Throws CommError(kInvalidArgument): not a number, negative, zero or above 1e9.
TC_API std::optional<std::chrono::milliseconds> env_seconds(const std::string& name);

// The number of variable `name`, an "int" of the table, or its default.
// Throws CommError(kInvalidArgument): no whole number, or not from `least` to `most`.
TC_API int64_t env_int(const std::string& name);

// Reads `variable` as the library does: for a look at all of them before they are needed.
// Throws CommError(kInvalidArgument) for a text that is not allowed.
TC_API void validate_env_var(const EnvVar& variable);

}  // namespace torch::comms::base
