#include "base/os/env.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "base/os/env_table.hpp"
#include "base/os/log.hpp"

namespace torch::comms {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

[[noreturn]] void refuse(const std::string& key, std::string_view text,
                         const std::string& allowed) {
  throw CommError(Errc::kInvalidArgument, "environment variable " + key + "='" + std::string(text) +
                                              "' is not allowed: expected " + allowed);
}

std::optional<bool> parse_bool(std::string_view text) {
  std::string lower;
  for (char c : text) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  if (lower == "1" || lower == "true" || lower == "yes" || lower == "y") return true;
  if (lower == "0" || lower == "false" || lower == "no" || lower == "n") return false;
  return std::nullopt;
}

template <class T>
std::optional<T> parse_number(const std::string& text) {
  T value{};
  const auto end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc{} || stop != end) return std::nullopt;
  return value;
}

constexpr const char* kBoolTexts = "1, true, yes, y, 0, false, no or n";

}  // namespace

bool string_to_bool(std::string_view text) {
  if (const auto value = parse_bool(trim(text))) return *value;
  throw CommError(Errc::kInvalidArgument,
                  "'" + std::string(text) + "' is not a boolean: expected " + kBoolTexts);
}

template <class T>
T env_to_value(const std::string& key, const T& fallback) {
  const auto text = base::env_text(key);
  if (!text) return fallback;
  if constexpr (std::is_same_v<T, std::string>) {
    return *text;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (const auto value = parse_bool(*text)) return *value;
    refuse(key, *text, kBoolTexts);
  } else {
    if (const auto value = parse_number<T>(*text)) return *value;
    refuse(key, *text, std::is_integral_v<T> ? "a whole number in range" : "a number");
  }
}
template TC_API bool env_to_value(const std::string&, const bool&);
template TC_API int env_to_value(const std::string&, const int&);
template TC_API float env_to_value(const std::string&, const float&);
template TC_API double env_to_value(const std::string&, const double&);
template TC_API uint64_t env_to_value(const std::string&, const uint64_t&);
template TC_API std::string env_to_value(const std::string&, const std::string&);

namespace base {

std::span<const EnvVar> environment() {
#define TC_ENV_ROW(...) EnvVar{__VA_ARGS__},
  static const std::vector<EnvVar> rows = {TC_ENVIRONMENT(TC_ENV_ROW)};
#undef TC_ENV_ROW
  return rows;
}

std::optional<std::string> env_text(const std::string& name) {
  const char* raw = std::getenv(name.c_str());
  if (raw == nullptr) return std::nullopt;
  const auto text = trim(raw);
  if (text.empty()) return std::nullopt;
  return std::string(text);
}

std::optional<std::string> env_raw(const std::string& name) {
  const char* raw = std::getenv(name.c_str());
  return raw == nullptr ? std::nullopt : std::optional<std::string>(raw);
}

std::optional<std::chrono::milliseconds> env_seconds(const std::string& name) {
  const auto text = env_text(name);
  if (!text) return std::nullopt;
  const auto value = parse_number<double>(*text);
  if (!value || !(*value > 0.0) || *value > 1e9) refuse(name, *text, "seconds > 0, up to 1e9");
  // A positive value never rounds to 0, because 0 would mean no timeout.
  return std::chrono::milliseconds(std::max(1LL, std::llround(*value * 1e3)));
}

int64_t env_int(const std::string& name) {
  const auto row = std::ranges::find(environment(), name, &EnvVar::name);
  TC_CHECK(row != environment().end() && row->type == std::string_view("int"));
  const auto text = env_text(name);
  const auto value = parse_number<int64_t>(text.value_or(row->default_text));
  if (!text) return value.value_or(0);
  if (value && *value >= row->min_value && *value <= row->max_value) return *value;
  constexpr std::numeric_limits<int64_t> kAny;
  refuse(name, *text,
         "a whole number" +
             (row->min_value == kAny.min() ? "" : " from " + std::to_string(row->min_value)) +
             (row->max_value == kAny.max() ? "" : " to " + std::to_string(row->max_value)));
}

void validate_env_var(const EnvVar& variable) {
  const std::string_view type = variable.type;
  if (type == "bool") env_to_value(variable.name, false);
  if (type == "seconds") env_seconds(variable.name);
  if (type == "int") env_int(variable.name);
  if (variable.name == kLogLevelVariable) validate_log_level();
}

}  // namespace base
}  // namespace torch::comms
