#pragma once

#include <string>
#include <string_view>

namespace torch::comms::fr {

// The text with U+FFFD for every byte that is in no UTF-8 character [RFC 3629], as of a character
// that was cut off. Readers of JSON and of pickles refuse a whole document for one such byte.
std::string valid_utf8(std::string_view text);

}  // namespace torch::comms::fr
