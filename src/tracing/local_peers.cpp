#include "tracing/local_peers.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/os/handles.hpp"
#include "base/os/host.hpp"
#include "tracing/recorder.hpp"
#include "tracing/recorder_space.hpp"

namespace torch::comms::tracing {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBetweenSearches_ns = 1'000'000'000;

const CommRow* rows_of(const RingHeader& header) noexcept {
  return reinterpret_cast<const CommRow*>(reinterpret_cast<const std::byte*>(&header) +
                                          sizeof(RingHeader));
}

// Compares the members, because communicators of different ranks may have one name. If the members
// of `a` are unknown, any row matches.
bool may_be_the_same(const CommRow& a, const CommRow& b) noexcept {
  constexpr auto kUnknown = CommRow::kUnknownMembers;
  if ((a.flags.load(std::memory_order_relaxed) & kUnknown) != 0) return true;
  return (b.flags.load(std::memory_order_relaxed) & kUnknown) == 0 && a.runs_used == b.runs_used &&
         std::equal(a.runs.begin(), a.runs.begin() + std::min<size_t>(a.runs_used, a.runs.size()),
                    b.runs.begin());
}

}  // namespace

struct LocalPeerReader::PeerRingFile {
  base::FileDescriptor file;
  base::Mapping memory;

  const RingHeader& header() const noexcept {
    return *reinterpret_cast<const RingHeader*>(memory.bytes().data());
  }
  // A free lock means that the owner has exited, because only an owner holds the lock for long.
  bool has_owner_exited() const noexcept {
    if (::flock(file.get(), LOCK_SH | LOCK_NB) != 0) return false;
    ::flock(file.get(), LOCK_UN);
    return true;
  }

  // Opens a ring file. Returns: null if it is not a complete ring of this version.
  static std::shared_ptr<PeerRingFile> open(const fs::path& path) {
    auto ring_file = std::make_shared<PeerRingFile>();
    ring_file->file = base::FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat facts{};
    if (!ring_file->file || ::fstat(ring_file->file.get(), &facts) != 0 ||
        !S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid())
      return nullptr;
    constexpr size_t kNeeded = sizeof(RingHeader) + kCommRows * sizeof(CommRow);
    if (static_cast<size_t>(facts.st_size) < kNeeded) return nullptr;
    void* at = ::mmap(nullptr, kNeeded, PROT_READ, MAP_SHARED, ring_file->file.get(), 0);
    if (at == MAP_FAILED) return nullptr;
    ring_file->memory = base::Mapping(at, kNeeded);
    const auto& header = ring_file->header();
    if (header.magic != kMagic || header.version != kLayoutVersion ||
        header.header_bytes != sizeof(RingHeader) || header.row_bytes != sizeof(CommRow) ||
        header.rows != kCommRows)
      return nullptr;
    // A file from another host, or a copy, has no owner that holds the lock.
    static const std::string boot = base::boot_identity();
    if (header.inode != facts.st_ino || boot != header.boot.data()) return nullptr;
    return ring_file;
  }
};

// The row of a peer rank in its ring file.
struct LocalPeerReader::PeerRow {
  std::shared_ptr<const PeerRingFile> file;
  const CommRow* row = nullptr;
  uint64_t key = 0;

  PeerRecord read(int rank) const {
    PeerRecord seen{
        .rank = rank, .pid = file->header().pid, .has_process_exited = file->has_owner_exited()};
    seen.is_finalized = (row->flags.load(std::memory_order_acquire) & CommRow::kFinalized) != 0;
    seen.last_started = row->last_started.load(std::memory_order_acquire);
    seen.is_overwritten = row->key.load(std::memory_order_relaxed) != key;
    return seen;
  }
};

LocalPeerReader::LocalPeerReader(std::string name, int rank, int size, uint64_t since_ns,
                                 uint64_t identity)
    : name_(std::move(name)), rank_(rank), size_(size), since_ns_(since_ns), identity_(identity) {}
LocalPeerReader::~LocalPeerReader() = default;

// Returns the newest row of `rank`; nullptr if there is none. `own`: the row of this process.
const CommRow* LocalPeerReader::find(const RingHeader& header, int rank, const CommRow* own) const {
  std::array<char, sizeof(CommRow::name)> kept{};
  copy_truncated(kept, name_);
  const CommRow* found = nullptr;
  for (size_t i = 0; i < kCommRows; ++i) {
    const auto& row = rows_of(header)[i];
    if (row.key.load(std::memory_order_acquire) == 0 || row.rank != rank || row.size != size_ ||
        row.time_ns < since_ns_ || row.name != kept ||
        (identity_ != 0 && row.identity != identity_) ||
        (row.flags.load(std::memory_order_relaxed) & CommRow::kInitializing) != 0 ||
        (own != nullptr && !may_be_the_same(*own, row)))
      continue;
    if (found == nullptr || found->time_ns < row.time_ns) found = &row;
  }
  return found;
}

void LocalPeerReader::search() {
  searched_ns_ = now_ns();
  if (peers_.size() + 1 == static_cast<size_t>(size_)) return;
  const auto* const here = find(process_ring().header(), rank_);
  const auto look_into = [&](const fs::path& path) {
    const auto file = path.extension() == kFileSuffix ? PeerRingFile::open(path) : nullptr;
    if (!file) return;
    for (int rank = 0; rank < size_; ++rank)
      if (rank != rank_ && !peers_.contains(rank))
        if (const auto* row = find(file->header(), rank, here))
          peers_[rank] = {file, row, row->key.load(std::memory_order_acquire)};
  };
  for (const auto& folder : job_directories()) {
    std::error_code error;  // other processes may add and remove files meanwhile
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
      look_into(at->path());
  }
}

std::vector<PeerRecord> LocalPeerReader::read() {
  search();
  std::vector<PeerRecord> all;
  all.reserve(peers_.size());
  for (const auto& [rank, peer] : peers_) all.push_back(peer.read(rank));
  return all;
}

PeerRecord LocalPeerReader::first_exited() {
  if (now_ns() - searched_ns_ > kBetweenSearches_ns) search();
  for (const auto& [rank, peer] : peers_)
    if (const auto seen = peer.read(rank);
        seen.has_process_exited && !seen.is_finalized && !seen.is_overwritten)
      return seen;
  return {};
}

std::string LocalPeerReader::format_status() {
  const auto seen = read();
  if (seen.empty()) return {};
  const auto* own = find(process_ring().header(), rank_);
  // Collectives complete in order, so this is the one that the rank waits in.
  const uint64_t number =
      own == nullptr ? 0 : own->last_completed.load(std::memory_order_relaxed) + 1;
  std::string behind, there;
  int unseen = size_ - 1;
  for (const auto& one : seen) {
    --unseen;
    const auto who = "rank " + std::to_string(one.rank);
    const auto separated = [](std::string& list) -> std::string& {
      return list += list.empty() ? "" : "; ";
    };
    if (one.has_process_exited)
      separated(behind) += who + ": its process (" + std::to_string(one.pid) + ") has ended";
    else if (one.is_overwritten)
      continue;
    else if (one.is_finalized)
      separated(behind) += who + " has finalized the communicator";
    else if (one.last_started < number)
      separated(behind) +=
          who + " has not called collective number " + std::to_string(number) +
          (one.last_started == 0 ? ", nor one before"
                                 : ", its last was " + std::to_string(one.last_started));
    else
      there += (there.empty() ? "" : ", ") + std::to_string(one.rank);
  }
  if (own == nullptr) return behind;  // newer communicators replaced the own row
  std::string text = behind;
  if (!there.empty())
    text += (text.empty() ? "" : "; ") + ("called by rank " + there) + " and this one";
  if (unseen > 0)
    text += "; " + std::to_string(unseen) +
            " not visible: on other hosts, of other users, or without a ring file";
  return text;
}

}  // namespace torch::comms::tracing
