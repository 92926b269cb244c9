#include "base/text/utf8.hpp"

#include <algorithm>
#include <bit>

namespace torch::comms::base {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";
constexpr size_t kMostFollowing = 3;  // bytes of a character after its first

bool follows(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Returns the length of the character that `text` begins with; 0: no valid character.
size_t character_bytes(std::string_view text) {
  const auto byte = [text](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const auto length = static_cast<size_t>(std::countl_one(lead));
  if (text.size() < length) return 0;
  // Overlong forms, surrogates and values above U+10FFFF are invalid.
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) > 0x9f) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) > 0x8f) return 0;
  return std::ranges::all_of(text.substr(1, length - 1), follows) ? length : 0;
}

}  // namespace

std::string replace_invalid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const size_t length = character_bytes(text);
    valid += length > 0 ? text.substr(0, length) : kReplacement;
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return valid;
}

std::string_view utf8_prefix(std::string_view text, size_t most_bytes) noexcept {
  if (text.size() <= most_bytes) return text;
  size_t end = most_bytes;
  while (end > 0 && most_bytes - end < kMostFollowing && follows(text[end])) --end;
  return text.substr(0, follows(text[end]) ? most_bytes : end);
}

std::string_view utf8_suffix(std::string_view text, size_t most_bytes) noexcept {
  if (text.size() <= most_bytes) return text;
  const auto end = text.substr(text.size() - most_bytes);
  size_t begin = 0;
  while (begin < std::min(end.size(), kMostFollowing) && follows(end[begin])) ++begin;
  return end.substr(begin);
}

}  // namespace torch::comms::base
