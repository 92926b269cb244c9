#include "tracing/recorder.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>

#include <torchcomms/base/error.hpp>

#include "base/os/env.hpp"
#include "base/os/file_size.hpp"
#include "base/os/fork.hpp"
#include "base/os/host.hpp"
#include "base/os/log.hpp"
#include "tracing/recorder_space.hpp"
#include "tracing/ring_file.hpp"

namespace torch::comms::tracing {
namespace {

constexpr int64_t kDay_s = 24LL * 60 * 60;

// The recorder's state of a process besides its ring. It is never destroyed, because fork and exit
// handlers run late.
struct RecorderState {
  std::mutex mutex;  // guards the other members
  uint64_t generation = ~uint64_t{0};
  EventRing* ring = nullptr;  // process_ring(), once record_process() has run
  std::optional<OwnedRingFile> file;
  std::vector<std::string> folders;  // of the job, where its processes may have their files
  std::string why_in_memory;         // why there is no file, although one was wanted
};
RecorderState& recorder_state();

// Locks held around fork(): a child could never release locks of other threads.
void before_fork() {
  recorder_state().mutex.lock();
  if (auto* ring = recorder_state().ring) ring->rows_mutex().lock();
}
void after_fork() {
  if (auto* ring = recorder_state().ring) ring->rows_mutex().unlock();
  recorder_state().mutex.unlock();
}
void detach_child();

RecorderState& recorder_state() {
  static auto* instance = [] {
    auto* fresh = new RecorderState;
    ::pthread_atfork(before_fork, after_fork, detach_child);
    return fresh;
  }();
  return *instance;
}

// Makes `text` safe for a file name.
std::string plain(std::string text) {
  std::ranges::replace_if(
      text,
      [](unsigned char c) {
        return !(std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':');
      },
      '_');
  return text.substr(0, 100);
}

std::string job_name() {
  const auto address = base::env_text("MASTER_ADDR");
  const auto port = base::env_text("MASTER_PORT");
  if (!address || !port) return "parent_" + std::to_string(::getppid());
  const auto restarts = base::env_text("TORCHELASTIC_RESTART_COUNT");
  return plain(*address + "_" + *port + (restarts && *restarts != "0" ? "_r" + *restarts : ""));
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && text.back() == 0) text.pop_back();
  std::ranges::replace(text, '\0', ' ');
  std::ranges::replace(text, '\n', ' ');
  return text;
}

int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void introduce(RingHeader& header, const std::string& job, uint64_t inode,
               std::string_view vocabulary) {
  header.pid = ::getpid();
  header.began_ns = now_ns();
  header.began_wall_ns = wall_clock_ns();
  header.inode = inode;
  copy_truncated(header.boot, base::boot_identity());
  copy_truncated(header.host, base::host_name());
  copy_truncated(header.job, job);
  copy_truncated(header.command, command_line());
  copy_truncated(header.vocabulary, vocabulary);
  std::atomic_ref(header.magic).store(kMagic, std::memory_order_release);
}

// Moves the ring to memory of this process. Returns: false if there is no memory.
bool place_in_memory(EventRing& ring) noexcept {
  void* at = ::mmap(nullptr, ring.size_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);
  if (at == MAP_FAILED) return false;
  ring.move_to(static_cast<std::byte*>(at));
  return true;
}

// Runs in a forked child, on its only thread: leaves the parent's file and continues in the child's
// own memory.
void detach_child() {
  after_fork();
  auto& mine = recorder_state();
  if (!mine.file) return;
  if (!place_in_memory(*mine.ring)) std::abort();  // the next record would crash less clearly
  mine.file.reset();
}

// Publishes the file that holds the ring. If that fails, the ring moves out of the file, because
// forked children do not have its mapping, and the file's space is released.
void publish_or_leave(EventRing& ring, OwnedRingFile& file) {
  try {
    publish(file);
  } catch (const CommError&) {
    if (place_in_memory(ring)) ::munmap(file.bytes.data(), file.bytes.size());
    throw;
  }
}

void end_process_ring() {
  auto& mine = recorder_state();
  if (!mine.file || mine.generation != base::fork_generation()) return;
  auto& header = process_ring().header();
  header.ended_ns.store(now_ns(), std::memory_order_release);
  // The file stays if a communicator was not finalized: peers may wait in it, and the file shows
  // since when.
  if (header.open_communicators.load() <= 0) remove_file(mine.file->path);
}

void take_file(EventRing& ring, std::string_view vocabulary) {
  auto& mine = recorder_state();
  std::string why;
  const std::string job = job_name();
  mine.folders.clear();
  mine.why_in_memory.clear();
  const std::string name =
      plain(base::host_name()) + "-" + std::to_string(::getpid()) + kFileSuffix;
  for (const auto& folder : recorder_directories()) mine.folders.push_back(folder + "/" + job);
  for (const auto& folder : recorder_directories()) {
    try {
      const auto lock = lock_folder(folder);
      make_space(folder, std::time(nullptr) - kDay_s, ring.size_bytes());
      OwnedRingFile file = create_ring_file(folder, job, name, ring.size_bytes());
      ring.move_to(file.bytes.data());
      introduce(ring.header(), job, file.inode, vocabulary);
      publish_or_leave(ring, file);
      mine.file = std::move(file);
      [[maybe_unused]] static const int registered = std::atexit(end_process_ring);
      return;
    } catch (const CommError& error) {
      why += (why.empty() ? "" : "; ") + error.why();
    }
  }
  mine.why_in_memory = why;
  introduce(ring.header(), job, 0, vocabulary);
  if (why.empty()) return;  // the recorder is off
  const bool asked = base::env_text("TORCHCOMM_RECORDER_DIR").has_value();
  base::log(
      asked ? base::LogLevel::kWarning : base::LogLevel::kInfo,
      "the event ring of this process has no file and is lost when the process exits: " + why);
}

}  // namespace

EventRing& process_ring() {
  static EventRing* ring = [] {
    return new EventRing(static_cast<size_t>(base::env_int("TORCHCOMM_EVENTS_CAPACITY")));
  }();
  return *ring;
}

void record_process(std::string_view vocabulary) {
  auto& mine = recorder_state();
  std::lock_guard lock(mine.mutex);
  if (mine.generation == base::fork_generation()) return;
  mine.generation = base::fork_generation();
  mine.ring = &process_ring();
  take_file(*mine.ring, vocabulary);
}

uint32_t record_communicator(const CommunicatorInfo& communicator, std::string_view vocabulary) {
  record_process(vocabulary);
  return process_ring().add_communicator(communicator);
}

std::vector<std::string> recorder_directories() {
  if (const auto chosen = base::env_text("TORCHCOMM_RECORDER_DIR")) {
    if (*chosen == "off") return {};
    return {*chosen};
  }
  const std::string name = "/torchcomms-" + std::to_string(::geteuid());
  return {"/dev/shm" + name, base::env_text("TMPDIR").value_or("/tmp") + name};
}

std::string recorder_file() {
  auto& mine = recorder_state();
  std::lock_guard lock(mine.mutex);
  return mine.file && mine.generation == base::fork_generation() ? mine.file->path : "";
}

std::vector<std::string> job_directories() {
  auto& mine = recorder_state();
  std::lock_guard lock(mine.mutex);
  return mine.generation == base::fork_generation() ? mine.folders : std::vector<std::string>();
}

std::string in_memory_reason() {
  auto& mine = recorder_state();
  std::lock_guard lock(mine.mutex);
  return mine.generation == base::fork_generation() ? mine.why_in_memory : "";
}

std::vector<RecorderSpace> recorder_spaces() {
  std::vector<RecorderSpace> rooms;
  const uint64_t size = process_ring().size_bytes();
  for (const auto& folder : recorder_directories()) {
    RecorderSpace room;
    room.folder = folder;
    room.ring_bytes = size;
    try {
      const auto quota = quota_of(folder);
      base::require_file_size(size, "a ring of " + std::to_string(size) + " bytes");
      room.max_bytes = quota.max_bytes;
      room.available_bytes = quota.available_bytes;
      room.owned_bytes = quota.owned_bytes;
      room.orphaned_bytes = quota.orphaned_bytes;
      room.fitting_rings = quota.fitting_files(size);
      room.unavailable_reason = quota.full_reason(size);
    } catch (const CommError& error) {
      room.unavailable_reason = error.why();
    }
    rooms.push_back(std::move(room));
  }
  return rooms;
}

}  // namespace torch::comms::tracing
