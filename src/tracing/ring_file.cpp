#include "tracing/ring_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <type_traits>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "base/folders.hpp"
#include "base/system_error.hpp"
#include "tracing/recorder.hpp"

namespace torch::comms::tracing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnpublished = ".new";
constexpr size_t kMostFiles = 4096;  // that one process looks at

// The folder, ours alone: others' could be links to anywhere.
void require_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw base::system_error("mkdir of " + path);
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) throw base::system_error("lstat of " + path);
  if (!S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() || (found.st_mode & 022) != 0)
    throw CommError(Errc::kSystem, path + " is not a folder that this user alone may write");
}

base::FileDescriptor open_to_read(const fs::path& path) noexcept {
  return base::FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
}

// Its owner's descriptor is gone. Takes the lock, so that only one acts on it.
base::FileDescriptor without_owner(const fs::path& path) {
  auto file = open_to_read(path);
  if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return file;
}

// Takes the lock of a file that was just made. Another process that looks for what is left may hold
// it for a moment, and have removed the file then: false.
bool own(const base::FileDescriptor& file, const std::string& path) {
  int result = 0;
  while ((result = ::flock(file.get(), LOCK_EX)) != 0 && errno == EINTR) continue;
  struct stat facts{};
  if (result != 0 || ::fstat(file.get(), &facts) != 0) {
    const auto error = base::system_error("flock of " + path);
    ::unlink(path.c_str());
    throw error;
  }
  return facts.st_nlink > 0;
}

struct Left {
  fs::path path;
  int64_t changed_s;
  uint64_t size_bytes;
  bool tells;  // of a communicator that was not finalized
};

// By its name and its first bytes: folders may have files of others, too. One that is being made
// has zeroes first.
bool is_ours(const fs::path& path, uint64_t size_bytes) {
  const bool is_new = path.extension() == kUnpublished;
  if ((is_new ? path.stem() : path).extension() != kFileSuffix) return false;
  if (is_new && size_bytes == 0) return true;
  std::remove_const_t<decltype(kMagic)> begin{};
  if (size_bytes < sizeof(RingHeader) ||
      ::pread(open_to_read(path).get(), begin.data(), sizeof begin, 0) != ssize_t{sizeof begin})
    return false;
  return begin == kMagic || (is_new && begin == decltype(begin){});
}

// Processes that end by _exit() take nothing along, but may have left nothing open.
bool tells(const base::FileDescriptor& file) noexcept {
  decltype(RingHeader::open) open{0};
  static_assert(sizeof(open) == sizeof(int32_t));
  return ::pread(file.get(), &open, sizeof(open), offsetof(RingHeader, open)) == sizeof(open) &&
         open.load() > 0;
}

// The wall clock at its newest event, in seconds; 0: it has none. What is written through a map
// need not change the file's own time.
int64_t newest_event_s(const base::FileDescriptor& file) noexcept {
  RingHeader header;
  if (::pread(file.get(), &header, sizeof header, 0) != ssize_t{sizeof header}) return 0;
  const uint64_t next = header.next.load();
  if (next == 0 || header.slots == 0 || header.slot_bytes != sizeof(Slot)) return 0;
  const uint64_t at = header.header_bytes + uint64_t{header.rows} * header.row_bytes +
                      (next - 1) % header.slots * sizeof(Slot) + offsetof(Slot, words);
  uint64_t time_ns = 0;
  if (::pread(file.get(), &time_ns, sizeof time_ns, static_cast<off_t>(at)) !=
          ssize_t{sizeof time_ns} ||
      time_ns < header.began_ns)
    return 0;
  constexpr int64_t kSecond_ns = 1'000'000'000;
  const auto since_s = static_cast<int64_t>((time_ns - header.began_ns) / kSecond_ns);
  return std::min<int64_t>(header.began_wall_ns / kSecond_ns + since_s, std::time(nullptr));
}

std::vector<Left> left_files(const fs::path& folder) {
  std::vector<Left> found;
  std::error_code ignored;  // another process may remove what this one looks at
  for (fs::directory_iterator job(folder, ignored), end; !ignored && job != end;
       job.increment(ignored)) {
    std::error_code inner;
    if (!job->is_directory(inner) || job->is_symlink(inner)) continue;
    for (fs::directory_iterator at(job->path(), inner); !inner && at != end; at.increment(inner)) {
      const auto suffix = at->path().extension();
      if (suffix != kFileSuffix && suffix != kUnpublished) continue;
      struct stat facts{};
      if (::lstat(at->path().c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
      if (!is_ours(at->path(), static_cast<uint64_t>(facts.st_size))) continue;
      const auto file = without_owner(at->path());
      if (!file) continue;
      found.push_back({at->path(), std::max<int64_t>(facts.st_mtime, newest_event_s(file)),
                       static_cast<uint64_t>(facts.st_blocks) * 512, tells(file)});
      if (found.size() == kMostFiles) return found;
    }
  }
  return found;
}

}  // namespace

OwnedFile make_file(const std::string& folder, const std::string& job, const std::string& name,
                    size_t size_bytes) {
  base::make_folders_to(folder);
  require_folder(folder);
  OwnedFile made;
  made.path = folder + "/" + job + "/" + name;
  const std::string path = made.path + kUnpublished;
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  for (int attempt = 0; !made.lock && attempt < 10; ++attempt) {
    require_folder(folder + "/" + job);
    made.lock = base::FileDescriptor(::open(path.c_str(), kFlags, 0600));
    if (made.lock) {
      if (!own(made.lock, path)) made.lock = {};
    } else if (errno == EEXIST) {
      if (without_owner(path)) ::unlink(path.c_str());
    } else if (errno != ENOENT) {  // else another process has removed the empty folder
      throw base::system_error("open of " + path);
    }
  }
  if (!made.lock) throw CommError(Errc::kSystem, path + " is in use by another process");
  try {
    const auto size = static_cast<off_t>(size_bytes);
    if (const int error = ::posix_fallocate(made.lock.get(), 0, size); error != 0)
      throw base::system_error(error, std::to_string(size_bytes) + " bytes for " + path);
    struct stat facts{};
    if (::fstat(made.lock.get(), &facts) != 0) throw base::system_error("fstat of " + path);
    made.inode = facts.st_ino;
    void* at = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                      made.lock.get(), 0);
    if (at == MAP_FAILED) throw base::system_error("mmap of " + path);
    made.bytes = {static_cast<std::byte*>(at), size_bytes};
    // A child must neither write into the parent's record nor keep its lock.
    if (::madvise(at, size_bytes, MADV_DONTFORK) != 0)
      throw base::system_error("madvise of " + path);
  } catch (...) {
    remove_file(path);
    throw;
  }
  return made;
}

void publish(OwnedFile& file) {
  // Of two processes with one number, in containers, the younger gets another name.
  const std::string path = file.path + kUnpublished;
  const fs::path stem = fs::path(file.path).replace_extension();
  for (int count = 1; count < 100; ++count) {
    // Not rename(): it would take another's place.
    if (::link(path.c_str(), file.path.c_str()) == 0) {
      ::unlink(path.c_str());
      return;
    }
    if (errno != EEXIST) break;
    file.path = stem.string() + "." + std::to_string(count) + kFileSuffix;
  }
  const int code = errno;
  remove_file(path);
  errno = code;
  throw base::system_error("link of " + file.path);
}

void remove_file(const std::string& path) noexcept {
  ::unlink(path.c_str());
  // Fails where something else is in it, which is well.
  ::rmdir(path.substr(0, path.rfind('/')).c_str());
}

void reclaim(const std::string& folder, int64_t oldest_s, uint64_t most_bytes) noexcept try {
  auto left = left_files(folder);
  std::ranges::sort(left, std::greater{}, &Left::changed_s);
  uint64_t kept = 0;
  for (const auto& [path, changed_s, size_bytes, tells] : left) {
    if (tells) kept += size_bytes;
    if (tells && changed_s >= oldest_s && kept <= most_bytes) continue;
    if (without_owner(path)) remove_file(path);
  }
} catch (const std::exception& error) {
  static_cast<void>(error);  // memory: what is left stays for the next process
}

}  // namespace torch::comms::tracing
