#include <torchcomms/options.hpp>

#include <charconv>

#include <torchcomms/base/error.hpp>

#include "base/os/env.hpp"
#include "core/options/hint.hpp"

namespace torch::comms {
namespace {

std::chrono::milliseconds default_timeout() {
  return base::env_seconds("TORCHCOMM_TIMEOUT_SECONDS").value_or(kDefaultTimeout);
}

}  // namespace

CommOptions::CommOptions()
    : abort_process_on_timeout_or_error(env_to_value<bool>("TORCHCOMM_ABORT_ON_ERROR", true)),
      timeout(default_timeout()) {}

bool CommOptions::operator==(const CommOptions& other) const {
  return abort_process_on_timeout_or_error == other.abort_process_on_timeout_or_error &&
         timeout == other.timeout && hints == other.hints;
}

template <>
bool CommOptions::getHint<bool>(const std::string& key, const bool& fallback) const {
  return parse_bool_hint(hints, key, fallback);
}

template <>
size_t CommOptions::getHint<size_t>(const std::string& key, const size_t& fallback) const {
  const auto found = hints.find(key);
  if (found == hints.end()) return fallback;
  const std::string& text = found->second;
  size_t value = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc::result_out_of_range)
    throw CommError(Errc::kOutOfRange, "hint " + key + "='" + text + "' is too large");
  if (code != std::errc{} || stop != text.data() + text.size())
    throw CommError(Errc::kInvalidArgument,
                    "hint " + key + "='" + text + "' is not allowed: expected a whole number >= 0");
  return value;
}

template <>
std::string CommOptions::getHint<std::string>(const std::string& key,
                                              const std::string& fallback) const {
  const auto found = hints.find(key);
  return found == hints.end() ? fallback : found->second;
}

}  // namespace torch::comms
