#include "ctran/selection/field_parser.hpp"

#include <algorithm>
#include <charconv>

#include <torchcomms/base/error.hpp>

namespace torch::comms::ctran {
namespace {

constexpr std::string_view kBlank = " \t\r";

// Quotes text from outside for an error: without control characters, and not too long.
std::string quoted(std::string_view text) {
  constexpr size_t kMost = 40;
  std::string out = "'";
  for (const char c : text.substr(0, kMost)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > kMost ? "...'" : "'");
}

template <class T>
bool parse(std::string_view text, T& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc{} && end == text.data() + text.size();
}

}  // namespace

void FieldParser::fail(std::string_view field, std::string_view found,
                       std::string_view allowed) const {
  throw CommError(Errc::kInvalidArgument,
                  source_ + ", line " + std::to_string(line_) + ", " + std::string(field) + ": " +
                      (found.empty() ? std::string("missing") : quoted(found)) +
                      "; allowed: " + std::string(allowed));
}

std::string_view FieldParser::word(std::string_view field, std::string_view allowed) {
  const auto begin = rest_.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) fail(field, {}, allowed);
  rest_.remove_prefix(begin);
  const auto found = rest_.substr(0, rest_.find_first_of(kBlank));
  rest_.remove_prefix(found.size());
  return found;
}

void FieldParser::literal(std::string_view expected) {
  const auto found = word("word", expected);
  if (found != expected) fail("word", found, expected);
}

bool FieldParser::try_literal(std::string_view wanted) noexcept {
  auto rest = rest_;
  rest.remove_prefix(std::min(rest.find_first_not_of(kBlank), rest.size()));
  if (rest.substr(0, rest.find_first_of(kBlank)) != wanted) return false;
  rest.remove_prefix(wanted.size());
  rest_ = rest;
  return true;
}

double FieldParser::number(std::string_view field, double most) {
  const std::string allowed = "a number from 0 to " + std::to_string(static_cast<int64_t>(most));
  const auto text = word(field, allowed);
  double value = 0;
  if (!parse(text, value) || !(value >= 0 && value <= most)) fail(field, text, allowed);
  return value;
}

int64_t FieldParser::integer(std::string_view field, int64_t most) {
  const std::string allowed = "a whole number from 0 to " + std::to_string(most);
  const auto text = word(field, allowed);
  int64_t value = 0;
  if (!parse(text, value) || value < 0 || value > most) fail(field, text, allowed);
  return value;
}

FieldParser::IntegerRange FieldParser::integer_range(std::string_view field, int64_t least,
                                                     int64_t most) {
  const std::string allowed = "<first>..<last>, whole numbers from " + std::to_string(least) +
                              " to " + std::to_string(most) + " with first <= last";
  const auto text = word(field, allowed);
  const auto dots = text.find("..");
  IntegerRange range;
  if (dots == std::string_view::npos || !parse(text.substr(0, dots), range.first) ||
      !parse(text.substr(dots + 2), range.last) || range.first < least || range.last > most ||
      range.first > range.last)
    fail(field, text, allowed);
  return range;
}

void FieldParser::require_end() {
  const auto begin = rest_.find_first_not_of(kBlank);
  if (begin != std::string_view::npos) fail("end of line", rest_.substr(begin), "nothing more");
}

}  // namespace torch::comms::ctran
