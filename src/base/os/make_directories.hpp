#pragma once

#include <string>

namespace torch::comms::base {

// Creates the parent folders of the file `path`.
// Throws: system_error() that names the path.
void make_parent_directories(const std::string& path);

}  // namespace torch::comms::base
