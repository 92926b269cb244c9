#include "base/os/log.hpp"

#include <unistd.h>

#include <optional>
#include <string>

#include <torchcomms/base/error.hpp>

#include "base/os/env.hpp"

namespace torch::comms::base {
namespace {

constexpr const char* kLevelNames[] = {"error", "warning", "info", "debug"};

// Returns the level that the environment asks for; nothing if its text is no level.
std::optional<LogLevel> wanted() {
  const auto text = env_text(std::string(kLogLevelVariable));
  if (!text) return LogLevel::kWarning;
  for (int i = 0; i < 4; ++i)
    if (*text == kLevelNames[i]) return static_cast<LogLevel>(i);
  return std::nullopt;
}

LogLevel threshold() {
  static const LogLevel level = wanted().value_or(LogLevel::kWarning);
  return level;
}

}  // namespace

void log(LogLevel level, std::string_view text) noexcept {
  try {
    if (level > threshold()) return;
    std::string line = "torchcomms ";
    line += kLevelNames[static_cast<int>(level)];
    line += " [" + std::to_string(::getpid()) + "]: ";
    line += text;
    line += '\n';
    // One write call per line, so that lines of several processes do not mix.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (const std::exception&) {
    // Out of memory while logging: the line is dropped.
  }
}

void validate_log_level() {
  if (!wanted())
    throw CommError(Errc::kInvalidArgument,
                    "environment variable " + std::string(kLogLevelVariable) + "='" +
                        env_text(std::string(kLogLevelVariable)).value_or("") +
                        "' is not allowed: expected error, warning, info or debug");
}

}  // namespace torch::comms::base
