#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace torch::comms::bootstrap {

// Expands a Slurm node list, in order: "n[01-03,7]-x,gpu5" gives n01-x, n02-x, n03-x, n7-x, gpu5. A
// range keeps the width of its first number. With several brackets in a name, the last one varies
// fastest.
// Throws: CommError: kInvalidArgument with the text and the position, kTooLarge above 65,536 hosts
// or 1 MiB.
std::vector<std::string> expand_hostlist(std::string_view text);

}  // namespace torch::comms::bootstrap
