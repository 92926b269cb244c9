#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include <torchcomms/base/env.hpp>

// Reads the process environment; no other C++ file of the library does. Each call reads the
// variable again. All functions except env_raw() trim white space and treat an empty value as
// unset.
// Threads: any, as long as no thread changes the environment.
namespace torch::comms::base {

// An environment variable of torchcomms: what the documentation, `--help` and the parser need to
// know.
struct EnvVar {
  const char* name;          // may have a placeholder: "TORCHCOMM_<BACKEND>_LIBRARY"
  const char* type;          // "bool", "seconds", "int", "text", "path"
  const char* default_text;  // as text; "": no default
  const char* doc;           // one sentence
  // The allowed range, for type "int".
  int64_t min_value = std::numeric_limits<int64_t>::min();
  int64_t max_value = std::numeric_limits<int64_t>::max();
};

// Returns the table of env_table.hpp, in the order of the documentation.
// Lifetime: until the process exits.
TC_API std::span<const EnvVar> environment();

// Returns the value of `name`, trimmed; nothing if unset or empty.
TC_API std::optional<std::string> env_text(const std::string& name);

// Returns the value of `name` untrimmed, also if it is empty; nothing if unset. Only for
// TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD: any text of it selects launchers.
TC_API std::optional<std::string> env_raw(const std::string& name);

// Reads a timeout in decimal seconds from `name`. Returns: the value rounded to milliseconds, at
// least 1 ms; nothing if unset.
// Throws: CommError(kInvalidArgument) if the value is not a number, not positive, or above 1e9.
TC_API std::optional<std::chrono::milliseconds> env_seconds(const std::string& name);

// Reads `name`, a variable of type "int" in the table. Returns: its value; if unset, the default,
// or 0 if the table has no default.
// Throws: CommError(kInvalidArgument) if the value is no whole number or outside
// min_value..max_value.
TC_API int64_t env_int(const std::string& name);

// Checks the value of `variable` as the library will read it later. Of texts and paths only
// TORCHCOMM_LOG_LEVEL is checked.
// Throws: CommError(kInvalidArgument) if the value is not allowed.
TC_API void validate_env_var(const EnvVar& variable);

}  // namespace torch::comms::base
