#pragma once

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

namespace torch::comms::nccl {

// A file with this text, for as long as this lives.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view text)
      : path_((std::filesystem::temp_directory_path() / "torchcomms_test_XXXXXX").string()) {
    const int file = ::mkstemp(path_.data());
    if (file < 0 || ::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      throw std::runtime_error("no temporary file " + path_);
    ::close(file);
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

}  // namespace torch::comms::nccl
