#include "base/os/make_directories.hpp"

#include <filesystem>
#include <system_error>

#include "base/os/system_error.hpp"

namespace torch::comms::base {

void make_parent_directories(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  // Some implementations of create_directories() do not report a file in the place of the folder.
  if (!error && !std::filesystem::is_directory(folder, error))
    error = std::make_error_code(std::errc::not_a_directory);
  if (error) throw system_error(error.value(), "cannot create the parent folders of " + path);
}

}  // namespace torch::comms::base
