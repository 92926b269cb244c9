#pragma once

#include <string>
#include <string_view>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// The text with U+FFFD for every byte that is in no UTF-8 character [RFC 3629], as of a character
// that was cut off. Python, and readers of JSON and of pickles, refuse a whole text for one such
// byte.
TC_API std::string replace_invalid_utf8(std::string_view text);

// As much of the text as fits into `most_bytes`, without a part of a character at its end; a text
// that is no UTF-8 there is cut anywhere.
TC_API std::string_view utf8_prefix(std::string_view text, size_t most_bytes) noexcept;
// The same of its end, without a part of a character at its beginning.
TC_API std::string_view utf8_suffix(std::string_view text, size_t most_bytes) noexcept;

}  // namespace torch::comms::base
