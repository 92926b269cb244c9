#pragma once

#include <string_view>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

inline constexpr std::string_view kLogLevelVariable = "TORCHCOMM_LOG_LEVEL";

enum class LogLevel { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Writes one line, "torchcomms <level> [pid]: <text>", to standard error if TORCHCOMM_LOG_LEVEL
// allows the level. The first call reads the variable; the default is "warning". If the line cannot
// be written, it is dropped.
// Threads: any.
TC_API void log(LogLevel level, std::string_view text) noexcept;

// Checks the current text of TORCHCOMM_LOG_LEVEL. For an unknown level log() uses the default.
// Throws: CommError(kInvalidArgument) if the level is unknown.
TC_API void validate_log_level();

}  // namespace torch::comms::base
