#include "tracing/ring_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "base/os/file_size.hpp"
#include "base/os/make_directories.hpp"
#include "base/os/system_error.hpp"
#include "tracing/recorder.hpp"

namespace torch::comms::tracing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnpublished = ".new";
constexpr size_t kMostFiles = 4096;  // read by one process
// A file may take 1/kShare of the free space, all files together 1/kShare of the file system.
constexpr uint64_t kShare = 10;
constexpr std::chrono::milliseconds kMostLocked{1000}, kLookAgain{1};

// Makes a folder that only this user may write to: in a folder of another user, a file could be a
// link to any place.
void require_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw base::system_error("mkdir of " + path);
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) throw base::system_error("lstat of " + path);
  if (!S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() || (found.st_mode & 022) != 0)
    throw CommError(Errc::kSystem, path + " must be a folder that only this user may write to");
}

base::FileDescriptor open_to_read(const fs::path& path) noexcept {
  return base::FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
}

// Locks a file whose owner has exited, so that only one process acts on it. Returns: empty if the
// owner lives.
base::FileDescriptor without_owner(const fs::path& path) {
  auto file = open_to_read(path);
  if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return file;
}

// Locks a file that was just created. Returns: false if a process that cleans up locked and removed
// the file first.
bool lock_new_file(const base::FileDescriptor& file, const std::string& path) {
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

struct OrphanedFile {
  fs::path path;
  int64_t changed_s;
  uint64_t size_bytes;
  bool has_open_communicators;  // a communicator was not finalized
};

// Checks the name and the first bytes, because a folder may have other files. A file in creation
// begins with zeroes.
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

// A process that ends by _exit() does not remove its file, but may have finalized all
// communicators.
bool has_open_communicators(const base::FileDescriptor& file) noexcept {
  decltype(RingHeader::open_communicators) open{0};
  static_assert(sizeof(open) == sizeof(int32_t));
  return ::pread(file.get(), &open, sizeof(open), offsetof(RingHeader, open_communicators)) ==
             sizeof(open) &&
         open.load() > 0;
}

// Returns the wall-clock time of the newest event, in seconds; 0: none. The file's own time is not
// reliable, because writes through a mapping need not update it.
int64_t newest_event_s(const base::FileDescriptor& file) noexcept {
  RingHeader header;
  if (::pread(file.get(), &header, sizeof header, 0) != ssize_t{sizeof header}) return 0;
  const uint64_t next = header.next.load();
  if (next == 0 || header.slots == 0 || header.slot_bytes != sizeof(EventSlot)) return 0;
  const uint64_t at = header.header_bytes + uint64_t{header.rows} * header.row_bytes +
                      (next - 1) % header.slots * sizeof(EventSlot) + offsetof(EventSlot, words);
  uint64_t time_ns = 0;
  if (::pread(file.get(), &time_ns, sizeof time_ns, static_cast<off_t>(at)) !=
          ssize_t{sizeof time_ns} ||
      time_ns < header.began_ns)
    return 0;
  constexpr int64_t kSecond_ns = 1'000'000'000;
  const auto since_s = static_cast<int64_t>((time_ns - header.began_ns) / kSecond_ns);
  return std::min<int64_t>(header.began_wall_ns / kSecond_ns + since_s, std::time(nullptr));
}

// The ring files of all jobs in a folder.
struct RingFiles {
  uint64_t owned_bytes = 0;
  std::vector<OrphanedFile> orphaned;

  uint64_t orphaned_bytes() const noexcept {
    uint64_t sum = 0;
    for (const auto& one : orphaned) sum += one.size_bytes;
    return sum;
  }
};

RingFiles files_in(const fs::path& folder) {
  RingFiles found;
  size_t count = 0;
  std::error_code ignored;  // another process may remove files meanwhile
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
      const auto size_bytes = static_cast<uint64_t>(facts.st_blocks) * 512;
      if (const auto file = without_owner(at->path()))
        found.orphaned.push_back({at->path(),
                                  std::max<int64_t>(facts.st_mtime, newest_event_s(file)),
                                  size_bytes, has_open_communicators(file)});
      else
        found.owned_bytes += size_bytes;
      if (++count == kMostFiles) return found;
    }
  }
  return found;
}

// Returns the state of the file system of `folder`, or of its nearest existing parent.
struct statvfs file_system_of(fs::path folder) {
  struct statvfs state{};
  while (::statvfs(folder.c_str(), &state) != 0) {
    const auto above = folder.parent_path();
    if (errno != ENOENT || above == folder || above.empty())
      throw base::system_error("statvfs of " + folder.string());
    folder = above;
  }
  return state;
}

RingFileQuota quota_of(const std::string& folder, const RingFiles& files) {
  const auto state = file_system_of(folder);
  RingFileQuota quota;
  const bool has_size = state.f_blocks != 0;  // a tmpfs may have no size limit
  quota.max_bytes = has_size ? uint64_t{state.f_blocks} * state.f_frsize / kShare : UINT64_MAX;
  quota.available_bytes = has_size ? uint64_t{state.f_bavail} * state.f_frsize : UINT64_MAX;
  quota.owned_bytes = files.owned_bytes;
  quota.orphaned_bytes = files.orphaned_bytes();
  return quota;
}

// Removes files with nothing unfinalized, files changed before `oldest_s`, and then the oldest
// beyond `most_bytes`.
void reclaim(std::vector<OrphanedFile> left, int64_t oldest_s, uint64_t most_bytes) {
  std::ranges::sort(left, std::greater{}, &OrphanedFile::changed_s);
  uint64_t kept = 0;
  for (const auto& [path, changed_s, size_bytes, is_unfinalized] : left) {
    const bool is_kept = is_unfinalized && changed_s >= oldest_s && kept + size_bytes <= most_bytes;
    if (is_kept)
      kept += size_bytes;
    else if (without_owner(path))
      remove_file(path);
  }
}

uint64_t difference(uint64_t a, uint64_t b) noexcept { return a > b ? a - b : 0; }

uint64_t sum(uint64_t a, uint64_t b) noexcept { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

}  // namespace

uint64_t RingFileQuota::fitting_files(uint64_t size_bytes) const noexcept {
  const uint64_t by_size = difference(max_bytes, owned_bytes) / size_bytes;
  const uint64_t free = sum(available_bytes, orphaned_bytes) / size_bytes;
  return std::min(by_size, difference(free, kShare - 1));
}

uint64_t RingFileQuota::max_orphaned_bytes(uint64_t size_bytes) const noexcept {
  const uint64_t by_size = difference(difference(max_bytes, owned_bytes), size_bytes);
  const uint64_t by_space = difference(sum(available_bytes, orphaned_bytes), kShare * size_bytes);
  return std::min({kMaxOrphanedBytes, by_size, by_space});
}

std::string RingFileQuota::full_reason(uint64_t size_bytes) const {
  const auto bytes = [](uint64_t count) { return std::to_string(count) + " bytes"; };
  if (fitting_files(size_bytes) > 0) return "";
  if (difference(max_bytes, owned_bytes) < size_bytes)
    return "a ring of " + bytes(size_bytes) + " does not fit: ring files may take " +
           bytes(max_bytes) + ", a tenth of the file system, and those of living processes take " +
           bytes(owned_bytes);
  return "a ring of " + bytes(size_bytes) +
         " does not fit: a ring file may take a tenth of what is free, " + bytes(available_bytes);
}

RingFileQuota quota_of(const std::string& folder) { return quota_of(folder, files_in(folder)); }

base::FileDescriptor lock_folder(const std::string& folder) {
  base::make_parent_directories(folder);
  require_folder(folder);
  base::FileDescriptor lock(
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!lock) throw base::system_error("open of " + folder);
  const auto until = std::chrono::steady_clock::now() + kMostLocked;
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) break;  // the file system does not support flock()
    if (std::chrono::steady_clock::now() > until)
      throw CommError(Errc::kSystem, "another process has held the lock of " + folder + " for 1 s");
    std::this_thread::sleep_for(kLookAgain);
  }
  return lock;
}

void make_space(const std::string& folder, int64_t oldest_s, size_t size_bytes) {
  base::require_file_size(size_bytes,
                          "a ring of " + std::to_string(size_bytes) + " bytes in " + folder);
  auto files = files_in(folder);
  const auto before = quota_of(folder, files);
  reclaim(std::move(files.orphaned), oldest_s, before.max_orphaned_bytes(size_bytes));
  const auto why = quota_of(folder).full_reason(size_bytes);
  if (!why.empty()) throw CommError(Errc::kResourceExhausted, folder + ": " + why);
}

OwnedRingFile create_ring_file(const std::string& folder, const std::string& job,
                               const std::string& name, size_t size_bytes) {
  base::make_parent_directories(folder);
  require_folder(folder);
  OwnedRingFile ring_file;
  ring_file.path = folder + "/" + job + "/" + name;
  const std::string path = ring_file.path + kUnpublished;
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  for (int attempt = 0; !ring_file.lock && attempt < 10; ++attempt) {
    require_folder(folder + "/" + job);
    ring_file.lock = base::FileDescriptor(::open(path.c_str(), kFlags, 0600));
    if (ring_file.lock) {
      if (!lock_new_file(ring_file.lock, path)) ring_file.lock = {};
    } else if (errno == EEXIST) {
      if (without_owner(path)) ::unlink(path.c_str());
    } else if (errno != ENOENT) {  // ENOENT: another process has removed the empty folder
      throw base::system_error("open of " + path);
    }
  }
  if (!ring_file.lock) throw CommError(Errc::kSystem, path + " is in use by another process");
  try {
    base::require_file_size(size_bytes, std::to_string(size_bytes) + " bytes for " + path);
    const auto size = static_cast<off_t>(size_bytes);
    if (const int error = ::posix_fallocate(ring_file.lock.get(), 0, size); error != 0)
      throw base::system_error(error, std::to_string(size_bytes) + " bytes for " + path);
    struct stat facts{};
    if (::fstat(ring_file.lock.get(), &facts) != 0) throw base::system_error("fstat of " + path);
    ring_file.inode = facts.st_ino;
    void* at = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                      ring_file.lock.get(), 0);
    if (at == MAP_FAILED) throw base::system_error("mmap of " + path);
    ring_file.bytes = {static_cast<std::byte*>(at), size_bytes};
    // A forked child must neither write into the parent's ring nor keep its lock.
    if (::madvise(at, size_bytes, MADV_DONTFORK) != 0)
      throw base::system_error("madvise of " + path);
  } catch (...) {
    if (!ring_file.bytes.empty()) ::munmap(ring_file.bytes.data(), ring_file.bytes.size());
    remove_file(path);
    throw;
  }
  return ring_file;
}

void publish(OwnedRingFile& file) {
  // Two processes with the same pid, in containers, get different names.
  const std::string path = file.path + kUnpublished;
  const fs::path stem = fs::path(file.path).replace_extension();
  for (int count = 1; count < 100; ++count) {
    // link() instead of rename(), which would replace an existing file.
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
  // Fails if the folder is not empty, as intended.
  ::rmdir(path.substr(0, path.rfind('/')).c_str());
}

void remove_orphaned_files(const std::string& folder, int64_t oldest_s,
                           uint64_t most_bytes) noexcept try {
  reclaim(files_in(folder).orphaned, oldest_s, most_bytes);
} catch (const std::exception& error) {
  static_cast<void>(error);  // out of memory: the files stay for the next process
}

}  // namespace torch::comms::tracing
