#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include <torchcomms/base/error.hpp>

#include "base/env.hpp"
#include "ctran/select/tuning.hpp"

namespace torch::comms::ctran {
namespace {

constexpr const char* kVariable = "TORCHCOMM_CTRAN_TUNING_FILE";

// "amd-epyc-9b45-2": what decides the constants, as a part of a file's name.
std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  std::string line, model = "processor";
  while (std::getline(info, line)) {
    if (!line.starts_with("model name")) continue;
    model = line.substr(std::min(line.size(), line.find(':') + 1));
    break;
  }
  return word_of(model) + "-" + std::to_string(std::thread::hardware_concurrency());
}

}  // namespace

std::string tuning_path() {
  if (const auto path = base::env_text(kVariable)) return *path;
  const auto home = base::env_text("HOME");
  return home ? *home + "/.cache/torchcomms/tuning-" + processor() + ".txt" : std::string();
}

std::string read_tuning_file(const std::string& path) {
  if (path.empty()) return {};
  if (::access(path.c_str(), F_OK) != 0) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxTuningBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad() || (file.fail() && !file.eof()))
    throw CommError(Errc::kSystem, "the tuning file " + path + " cannot be read");
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxTuningBytes)
    throw CommError(Errc::kTooLarge, path + ": more than " + std::to_string(kMaxTuningBytes) +
                                         " bytes, which is the most that are read");
  return text;
}

}  // namespace torch::comms::ctran
