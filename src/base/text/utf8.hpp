#pragma once

#include <string>
#include <string_view>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// Returns `text` with U+FFFD for every byte that belongs to no valid UTF-8 character [RFC 3629],
// for example of a truncated one. Python and readers of JSON and pickle reject a text with one
// invalid byte.
TC_API std::string replace_invalid_utf8(std::string_view text);

// Returns the longest prefix of at most `most_bytes` that does not end inside a character. Text
// that is not UTF-8 at that place is cut anywhere.
TC_API std::string_view utf8_prefix(std::string_view text, size_t most_bytes) noexcept;
// Returns the longest suffix of at most `most_bytes` that does not begin inside a character.
TC_API std::string_view utf8_suffix(std::string_view text, size_t most_bytes) noexcept;

}  // namespace torch::comms::base
