#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <thread>

#include <torchcomms/base/error.hpp>

#include "base/os/env.hpp"
#include "ctran/selection/tuning.hpp"

namespace torch::comms::ctran {
namespace {

constexpr const char* kVariable = "TORCHCOMM_CTRAN_TUNING_FILE";

// Returns what decides the constants, as a part of a file's name: "amd-epyc-9b45-2".
std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  std::string line, model = "processor";
  while (std::getline(info, line)) {
    if (!line.starts_with("model name")) continue;
    model = line.substr(std::min(line.size(), line.find(':') + 1));
    break;
  }
  return to_word(model) + "-" + std::to_string(std::thread::hardware_concurrency());
}

[[noreturn]] void refuse(const TuningFile& from, const std::string& reason) {
  auto why = from.format_name() + " cannot be read";
  if (!reason.empty()) why += ": " + reason;
  if (from.setting.empty()) throw CommError(Errc::kSystem, why);
  throw CommError(Errc::kInvalidArgument, why + "; `torchcomms tune --output " + from.path +
                                              "` writes one, and /dev/null stands for no file");
}

// Whether opening the file may block: a FIFO waits for a writer, a terminal for input.
bool may_block(const std::string& path) {
  struct stat info{}, null_info{};
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))
    return false;
  const bool is_null = S_ISCHR(info.st_mode) && ::stat("/dev/null", &null_info) == 0 &&
                       info.st_rdev == null_info.st_rdev;
  return !is_null;
}

}  // namespace

std::string TuningFile::format_name() const {
  return (setting.empty() ? "" : setting + ": ") + "the tuning file " + path;
}

TuningFile find_tuning_file(std::string_view hint, std::string_view value) {
  if (!value.empty()) return {std::string(value), "hint " + std::string(hint)};
  if (const auto path = base::env_text(kVariable)) return {*path, kVariable};
  const auto home_folder = base::env_text("HOME");
  if (!home_folder) return {};
  return {*home_folder + "/.cache/torchcomms/tuning-" + processor() + ".txt", ""};
}

std::string read_tuning_file(const TuningFile& from) {
  const auto& path = from.path;
  if (path.empty()) return {};
  if (from.setting.empty() && ::access(path.c_str(), F_OK) != 0) return {};
  if (may_block(path)) refuse(from, "it is not a regular file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxTuningBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad() || (file.fail() && !file.eof()))
    refuse(from, errno != 0 ? std::generic_category().message(errno) : "");
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxTuningBytes)
    throw CommError(Errc::kTooLarge, from.format_name() + " has more than " +
                                         std::to_string(kMaxTuningBytes) +
                                         " bytes, the most that are allowed");
  return text;
}

}  // namespace torch::comms::ctran
