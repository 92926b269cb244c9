#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace torch::comms::bootstrap {

// The hosts of a Slurm node list, in its order: "n[01-03,7]-x,gpu5" gives n01-x, n02-x, n03-x,
// n7-x, gpu5. A range keeps the width of its first number. Several brackets in a name vary like
// digits, the last fastest. Throws CommError: kInvalidArgument naming the text and the position,
// kTooLarge above 65,536 hosts or 1 MiB.
std::vector<std::string> expand_hostlist(std::string_view text);

}  // namespace torch::comms::bootstrap
