#pragma once

#include <string>

namespace torch::comms::base {

// Makes the folders that lead to the file `path`, for whoever is going to write it. Throws
// system_error() naming the path.
void make_parent_directories(const std::string& path);

}  // namespace torch::comms::base
