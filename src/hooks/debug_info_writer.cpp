#include <torchcomms/hooks/debug_info_writer.hpp>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>
#include <utility>

#include <unistd.h>

#include <torchcomms/base/env.hpp>
#include <torchcomms/base/error.hpp>

#include "base/os/env.hpp"
#include "base/os/make_directories.hpp"

namespace torch::comms::fr {
namespace {

constexpr const char* kPrefix = "TORCHCOMM_FR_DUMP_TEMP_FILE";

struct WriterRegistry {
  std::mutex mutex;  // guards writer
  std::shared_ptr<DebugInfoWriter> writer;
};
WriterRegistry& registered_writer() {
  // The registry is never destroyed, because the process may be dumped while it exits.
  static auto* state = new WriterRegistry;
  return *state;
}

std::string cache_folder() {
  if (const auto folder = base::env_text("XDG_CACHE_HOME")) return *folder;
  if (const auto home_folder = base::env_text("HOME")) return *home_folder + "/.cache";
  return (std::filesystem::temp_directory_path() / ".cache").string();
}

std::string prefix() {
  if (const auto given = base::env_text(kPrefix)) return *given;
  return cache_folder() + "/torch/comm_lib_trace_rank_";
}

class FileWriter : public DebugInfoWriter {
 public:
  explicit FileWriter(int rank)
      : DebugInfoWriter(prefix(), rank,
                        env_to_value<bool>("TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME", false)) {}
};

}  // namespace

DebugInfoWriter::DebugInfoWriter(const std::string& name_prefix, int rank, bool dynamic_file_name)
    : file_name_(name_prefix + std::to_string(rank)), dynamic_file_name_(dynamic_file_name) {}

std::string DebugInfoWriter::getWriterTarget() {
  return dynamic_file_name_ ? prefix() : file_name_;
}

void DebugInfoWriter::write(const std::string& trace) {
  const std::filesystem::path target = getWriterTarget();
  // The counter makes the names unique, because several threads may write at the same time.
  static std::atomic<uint64_t> writes{0};
  const std::filesystem::path beside = target.string() + "." + std::to_string(::getpid()) + "." +
                                       std::to_string(writes.fetch_add(1)) + ".tmp";
  std::error_code error;
  base::make_parent_directories(target);
  errno = 0;
  std::ofstream file(beside, std::ios::binary | std::ios::trunc);
  file.write(trace.data(), static_cast<std::streamsize>(trace.size()));
  file.close();
  if (!file) {
    const std::string why = std::strerror(errno);
    std::filesystem::remove(beside, error);
    throw CommError(Errc::kSystem, "cannot write " + beside.string() + ": " + why);
  }
  std::filesystem::rename(beside, target, error);
  if (error) {
    const std::string why = error.message();
    std::filesystem::remove(beside, error);
    throw CommError(Errc::kSystem, "cannot write " + target.string() + ": " + why);
  }
}

std::shared_ptr<DebugInfoWriter> DebugInfoWriter::getWriter(int rank) {
  auto& state = registered_writer();
  {
    std::lock_guard lock(state.mutex);
    if (state.writer) return state.writer;
  }
  return std::make_shared<FileWriter>(rank);
}

void DebugInfoWriter::registerWriter(std::unique_ptr<DebugInfoWriter> writer) {
  auto& state = registered_writer();
  std::shared_ptr<DebugInfoWriter>
      before;  // destroyed after the lock is released, because that may run any code
  std::lock_guard lock(state.mutex);
  before = std::exchange(state.writer, std::move(writer));
}

}  // namespace torch::comms::fr
