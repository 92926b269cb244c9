#include "base/log.hpp"

#include <unistd.h>

#include <string>

#include "base/env.hpp"

namespace torch::comms::base {
namespace {

constexpr const char* kWords[] = {"error", "warning", "info", "debug"};

LogLevel threshold() {
  static const LogLevel level = [] {
    const auto text = env_text("TORCHCOMM_LOG_LEVEL");
    for (int i = 0; text && i < 4; ++i)
      if (*text == kWords[i]) return static_cast<LogLevel>(i);
    return LogLevel::kWarning;
  }();
  return level;
}

}  // namespace

void log(LogLevel level, std::string_view text) noexcept {
  try {
    if (level > threshold()) return;
    std::string line = "torchcomms ";
    line += kWords[static_cast<int>(level)];
    line += " [" + std::to_string(::getpid()) + "]: ";
    line += text;
    line += '\n';
    // One write call, so that lines of several processes do not mix.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (const std::exception&) {
    // Out of memory while logging: there is nothing left to say it with.
  }
}

}  // namespace torch::comms::base
