#include "transport/shm/shared_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cinttypes>
#include <climits>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace torch::comms::transport::shm {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
struct CloseFolder {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};

struct MappedFile {
  dev_t device;
  ino_t inode;
  uint64_t offset;   // of the memory in the file
  std::string path;  // when it was mapped, or now
};

// Parses a line of /proc/self/maps [proc_pid_maps(5)].
// Returns: the file, if the line's mapping is shared and holds all of [at, at + size).
std::optional<MappedFile> mapped_file(const char* line, uint64_t at, uint64_t size) {
  uint64_t first = 0, last = 0, offset = 0, inode = 0;
  unsigned major_number = 0, minor_number = 0;
  char rights[5] = {};
  int path_at = 0;
  const int read =
      // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion): the system's own numbers
      std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &first,
                  &last, rights, &offset, &major_number, &minor_number, &inode, &path_at);
  if (read != 7 || at < first || at >= last) return std::nullopt;
  const bool whole = size <= last - at;
  const bool shared = rights[0] == 'r' && rights[1] == 'w' && rights[3] == 's' && inode != 0;
  if (!whole || !shared) return std::nullopt;
  const std::string_view path(line + path_at);
  return MappedFile{makedev(major_number, minor_number), inode, offset + (at - first),
                    std::string(path.substr(0, path.find('\n')))};
}

std::optional<MappedFile> find_mapping(uint64_t at, uint64_t size) {
  const std::unique_ptr<std::FILE, CloseFile> maps(std::fopen("/proc/self/maps", "re"));
  if (!maps) return std::nullopt;
  char line[PATH_MAX + 128];
  bool begins = true;
  while (std::fgets(line, sizeof line, maps.get()) != nullptr) {
    const bool whole = std::string_view(line).ends_with('\n');
    if (const bool first = std::exchange(begins, whole); !first) continue;
    if (const auto found = mapped_file(line, at, size)) return found;
  }
  return std::nullopt;
}

// Opens `name` if it is the wanted file.
// Returns: empty if another file has that name.
base::FileDescriptor open_at(int folder, const char* name, const MappedFile& wanted) {
  const auto is_it = [&](int failed, const struct stat& found) {
    return failed == 0 && found.st_ino == wanted.inode && found.st_dev == wanted.device;
  };
  struct stat found{};
  if (!is_it(::fstatat(folder, name, &found, 0), found)) return {};
  base::FileDescriptor file(::openat(folder, name, O_RDWR | O_CLOEXEC));
  return file && is_it(::fstat(file.get(), &found), found) ? std::move(file)
                                                           : base::FileDescriptor();
}

// Returns: a new descriptor of a mapped file. The file may have lost its name, or no descriptor of
// it may be open. Other threads may close their descriptors meanwhile, so none of theirs is used:
// the file is opened by the name that /proc gives it, and the opened file is checked again.
base::FileDescriptor open_again(const MappedFile& wanted) {
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir("/proc/self/fd"));
  if (!folder) return {};
  while (const auto* entry = ::readdir(folder.get()))
    if (auto file = open_at(::dirfd(folder.get()), entry->d_name, wanted)) return file;
  return open_at(AT_FDCWD, wanted.path.c_str(), wanted);
}

}  // namespace

FileLocation find_shared_file(Bytes bytes) noexcept {
  if (bytes.empty()) return {};
  const auto mapped = find_mapping(reinterpret_cast<uint64_t>(bytes.data()), bytes.size());
  if (!mapped) return {};
  FileLocation place{open_again(*mapped), mapped->inode, mapped->offset};
  return place.file ? std::move(place) : FileLocation{};
}

}  // namespace torch::comms::transport::shm
