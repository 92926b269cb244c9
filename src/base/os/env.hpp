#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include <torchcomms/base/env.hpp>

// Reads the process environment; no other file does. Each call reads the variable again, trims
// white space, and treats an empty value as unset.
namespace torch::comms::base {

// An environment variable of torchcomms: what the documentation, `--help` and the parser need to
// know.
struct EnvVar {
  const char* name;
  const char* type;          // "bool", "seconds", "int", "text", "path"
  const char* default_text;  // as text; "": no default
  const char* doc;           // one sentence
  // The allowed range, for type "int".
  int64_t min_value = std::numeric_limits<int64_t>::min();
  int64_t max_value = std::numeric_limits<int64_t>::max();
};

// Returns every variable that the library reads, in the order of the documentation.
TC_API std::span<const EnvVar> environment();

// Returns the value of `name`, trimmed; nothing if unset or empty.
TC_API std::optional<std::string> env_text(const std::string& name);

// Returns the value of `name` untrimmed; nothing if unset. Only for the variable whose contract
// requires it.
TC_API std::optional<std::string> env_raw(const std::string& name);

// Reads a timeout in decimal seconds from `name`. Returns: the value rounded to milliseconds, at
// least 1 ms; nothing if unset.
// Throws: CommError(kInvalidArgument) if the value is not a number, not positive, or above 1e9.
TC_API std::optional<std::chrono::milliseconds> env_seconds(const std::string& name);

// Reads `name`, a variable of type "int" in the table. Returns: its value, or the default if unset.
// Throws: CommError(kInvalidArgument) if the value is no whole number or outside
// min_value..max_value.
TC_API int64_t env_int(const std::string& name);

// Checks the value of `variable` as the library will read it later.
// Throws: CommError(kInvalidArgument) if the value is not allowed.
TC_API void validate_env_var(const EnvVar& variable);

}  // namespace torch::comms::base
