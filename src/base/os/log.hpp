#pragma once

#include <string_view>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

inline constexpr std::string_view kLogLevelVariable = "TORCHCOMM_LOG_LEVEL";

enum class LogLevel { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Writes one line, "torchcomms <level> [pid]: <text>", to standard error if TORCHCOMM_LOG_LEVEL
// (read once) allows the level. Never throws.
// Threads: any.
TC_API void log(LogLevel level, std::string_view text) noexcept;

// Throws CommError(kInvalidArgument) if TORCHCOMM_LOG_LEVEL is set to an unknown level. log() uses
// the default in that case.
TC_API void validate_log_level();

}  // namespace torch::comms::base
