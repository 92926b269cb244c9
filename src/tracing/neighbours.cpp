#include "tracing/neighbours.hpp"

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

#include "base/handles.hpp"
#include "base/host.hpp"
#include "tracing/recorder.hpp"
#include "tracing/recorder_room.hpp"

namespace torch::comms::tracing {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBetweenSearches_ns = 1'000'000'000;

const CommRow* rows_of(const RingHeader& header) noexcept {
  return reinterpret_cast<const CommRow*>(reinterpret_cast<const std::byte*>(&header) +
                                          sizeof(RingHeader));
}

// Communicators of different ranks may have one name. Where `a` does not know its members, any will
// do.
bool may_be_the_same(const CommRow& a, const CommRow& b) noexcept {
  constexpr auto kUnknown = CommRow::kUnknownMembers;
  if ((a.flags.load(std::memory_order_relaxed) & kUnknown) != 0) return true;
  return (b.flags.load(std::memory_order_relaxed) & kUnknown) == 0 && a.runs_used == b.runs_used &&
         std::equal(a.runs.begin(), a.runs.begin() + std::min<size_t>(a.runs_used, a.runs.size()),
                    b.runs.begin());
}

}  // namespace

struct Neighbours::File {
  base::FileDescriptor file;
  base::Mapping memory;

  const RingHeader& header() const noexcept {
    return *reinterpret_cast<const RingHeader*>(memory.bytes().data());
  }
  // Nobody has a lock on it that only its owner takes for long.
  bool has_ended() const noexcept {
    if (::flock(file.get(), LOCK_SH | LOCK_NB) != 0) return false;
    ::flock(file.get(), LOCK_UN);
    return true;
  }

  // Nothing for what is no whole ring of this version.
  static std::shared_ptr<File> open(const fs::path& path) {
    auto made = std::make_shared<File>();
    made->file = base::FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat facts{};
    if (!made->file || ::fstat(made->file.get(), &facts) != 0 || !S_ISREG(facts.st_mode) ||
        facts.st_uid != ::geteuid())
      return nullptr;
    constexpr size_t kNeeded = sizeof(RingHeader) + kRows * sizeof(CommRow);
    if (static_cast<size_t>(facts.st_size) < kNeeded) return nullptr;
    void* at = ::mmap(nullptr, kNeeded, PROT_READ, MAP_SHARED, made->file.get(), 0);
    if (at == MAP_FAILED) return nullptr;
    made->memory = base::Mapping(at, kNeeded);
    const auto& header = made->header();
    if (header.magic != kMagic || header.version != kLayoutVersion ||
        header.header_bytes != sizeof(RingHeader) || header.row_bytes != sizeof(CommRow) ||
        header.rows != kRows)
      return nullptr;
    // A copy, as of files that were collected, or of another host: nobody holds those.
    static const std::string boot = base::boot_identity();
    if (header.inode != facts.st_ino || boot != header.boot.data()) return nullptr;
    return made;
  }
};

// Where a rank is to be seen.
struct Neighbours::Seat {
  std::shared_ptr<const File> file;
  const CommRow* row = nullptr;
  uint64_t key = 0;

  Sighting look(int rank) const {
    Sighting seen{.rank = rank, .pid = file->header().pid, .process_ended = file->has_ended()};
    seen.closed = (row->flags.load(std::memory_order_acquire) & CommRow::kFinalized) != 0;
    seen.entered = row->entered.load(std::memory_order_acquire);
    seen.unknown = row->key.load(std::memory_order_relaxed) != key;
    return seen;
  }
};

Neighbours::Neighbours(std::string name, int rank, int size, uint64_t since_ns, uint64_t identity)
    : name_(std::move(name)), rank_(rank), size_(size), since_ns_(since_ns), identity_(identity) {}
Neighbours::~Neighbours() = default;

// The newest row of `rank`; nullptr where there is none. `own`: that of this process.
const CommRow* Neighbours::find(const RingHeader& header, int rank, const CommRow* own) const {
  std::array<char, sizeof(CommRow::name)> kept{};
  keep(kept, name_);
  const CommRow* found = nullptr;
  for (size_t i = 0; i < kRows; ++i) {
    const auto& row = rows_of(header)[i];
    if (row.key.load(std::memory_order_acquire) == 0 || row.rank != rank || row.size != size_ ||
        row.time_ns < since_ns_ || row.name != kept ||
        (identity_ != 0 && row.identity != identity_) ||
        (row.flags.load(std::memory_order_relaxed) & CommRow::kBeingMade) != 0 ||
        (own != nullptr && !may_be_the_same(*own, row)))
      continue;
    if (found == nullptr || found->time_ns < row.time_ns) found = &row;
  }
  return found;
}

void Neighbours::search() {
  searched_ns_ = now_ns();
  if (known_.size() + 1 == static_cast<size_t>(size_)) return;
  const auto* const here = find(process_ring().header(), rank_);
  const auto look_into = [&](const fs::path& path) {
    const auto file = path.extension() == kFileSuffix ? File::open(path) : nullptr;
    if (!file) return;
    for (int rank = 0; rank < size_; ++rank)
      if (rank != rank_ && !known_.contains(rank))
        if (const auto* row = find(file->header(), rank, here))
          known_[rank] = {file, row, row->key.load(std::memory_order_acquire)};
  };
  for (const auto& folder : job_folders()) {
    std::error_code error;  // others come and go meanwhile
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
      look_into(at->path());
  }
}

std::vector<Sighting> Neighbours::look() {
  search();
  std::vector<Sighting> all;
  all.reserve(known_.size());
  for (const auto& [rank, seat] : known_) all.push_back(seat.look(rank));
  return all;
}

Sighting Neighbours::first_ended() {
  if (now_ns() - searched_ns_ > kBetweenSearches_ns) search();
  for (const auto& [rank, seat] : known_)
    if (const auto seen = seat.look(rank); seen.process_ended && !seen.closed && !seen.unknown)
      return seen;
  return {};
}

std::string Neighbours::words() {
  const auto seen = look();
  if (seen.empty()) return {};
  const auto* own = find(process_ring().header(), rank_);
  // Collectives end in their order, so it is this one.
  const uint64_t number = own == nullptr ? 0 : own->finished.load(std::memory_order_relaxed) + 1;
  std::string behind, there;
  int unseen = size_ - 1;
  for (const auto& one : seen) {
    --unseen;
    const auto who = "rank " + std::to_string(one.rank);
    const auto separated = [](std::string& list) -> std::string& {
      return list += list.empty() ? "" : "; ";
    };
    if (one.process_ended)
      separated(behind) += who + ": its process (" + std::to_string(one.pid) + ") has ended";
    else if (one.unknown)
      continue;
    else if (one.closed)
      separated(behind) += who + " has finalized the communicator";
    else if (one.entered < number)
      separated(behind) +=
          who + " has not called collective number " + std::to_string(number) +
          (one.entered == 0 ? ", nor one before" : ", its last was " + std::to_string(one.entered));
    else
      there += (there.empty() ? "" : ", ") + std::to_string(one.rank);
  }
  if (own == nullptr) return behind;  // newer communicators have its place: who is where is unknown
  std::string text = behind;
  if (!there.empty())
    text += (text.empty() ? "" : "; ") + ("called by rank " + there) + " and this one";
  if (unseen > 0)
    text += "; " + std::to_string(unseen) +
            " cannot be seen: on other hosts, of other users, or with a record in memory alone";
  return text;
}

}  // namespace torch::comms::tracing
