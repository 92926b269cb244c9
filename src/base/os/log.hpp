#pragma once

#include <string_view>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

inline constexpr std::string_view kLogLevelVariable = "TORCHCOMM_LOG_LEVEL";

enum class LogLevel { kError = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// One line on standard error, "torchcomms <level> [pid]: <text>", if TORCHCOMM_LOG_LEVEL (read
// once) lets it. Any thread; never throws.
TC_API void log(LogLevel level, std::string_view text) noexcept;

// Throws CommError(kInvalidArgument) if TORCHCOMM_LOG_LEVEL is set to no level; log() takes the
// default then.
TC_API void validate_log_level();

}  // namespace torch::comms::base
