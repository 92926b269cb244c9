#include "tracing/event_ring.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <new>
#include <type_traits>

#include "base/op_order.hpp"
#include "base/os/fork.hpp"
#include "base/os/system_error.hpp"

namespace torch::comms::tracing {
namespace {

static_assert(std::is_trivially_copyable_v<TraceEvent>);
constexpr size_t kCacheLine = 64;
constexpr size_t kEventWords = sizeof(TraceEvent) / sizeof(uint64_t);
constexpr size_t kEnteredWord = offsetof(TraceEvent, started_ns) / sizeof(uint64_t);

base::Mapping anonymous(size_t size_bytes) {
  void* at =
      ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    throw base::system_error("mmap of the event ring, " + std::to_string(size_bytes) + " bytes");
  return {at, size_bytes};
}

void raise_to(std::atomic<uint64_t>& value, uint64_t at_least) noexcept {
  uint64_t before = value.load(std::memory_order_relaxed);
  while (before < at_least &&
         !value.compare_exchange_weak(before, at_least, std::memory_order_relaxed)) {
  }
}

// Returns the global rank of this process; -1 if `communicator` does not show it.
int global_rank(const CommunicatorInfo& communicator) noexcept {
  if (communicator.global_rank >= 0) return communicator.global_rank;
  if (communicator.is_initializing || communicator.rank < 0) return -1;
  const auto at = static_cast<size_t>(communicator.rank);
  return at < communicator.members.size() ? communicator.members[at] : communicator.rank;
}

// Returns whether the row counts in RingHeader::open_communicators.
bool is_open(const CommRow& row) noexcept {
  return row.size > 1 && (row.flags.load(std::memory_order_relaxed) & CommRow::kFinalized) == 0;
}

// Stores the members as runs. Returns: false if they do not fit.
bool keep_members(CommRow& row, const std::vector<int>& members) noexcept {
  row.runs_used = 0;
  for (const int member : members) {
    RankRun* last = row.runs_used == 0 ? nullptr : &row.runs.at(row.runs_used - 1);
    if (last != nullptr && last->count == 1) last->stride = member - last->start;
    if (last != nullptr && member == last->start + last->stride * last->count) {
      ++last->count;
      continue;
    }
    if (row.runs_used == row.runs.size()) {
      row.runs_used = 0;
      return false;
    }
    row.runs.at(row.runs_used++) = {.start = member, .stride = 1, .count = 1};
  }
  return !members.empty();
}

}  // namespace

EventRing::EventRing(size_t capacity)
    : mask_(std::bit_ceil(std::max<size_t>(capacity, 2)) - 1),
      own_(anonymous(size_bytes())),
      memory_(nullptr) {
  move_to(own_.bytes().data());
}

size_t EventRing::size_bytes() const noexcept {
  return sizeof(RingHeader) + kCommRows * sizeof(CommRow) + capacity() * sizeof(EventSlot);
}
CommRow* EventRing::rows() const noexcept {
  return reinterpret_cast<CommRow*>(memory() + sizeof(RingHeader));
}
EventSlot* EventRing::slots() const noexcept {
  return reinterpret_cast<EventSlot*>(memory() + sizeof(RingHeader) + kCommRows * sizeof(CommRow));
}

void EventRing::move_to(std::byte* memory) noexcept {
  // The memory is zero, so rows and slots need no initialization.
  auto* header = new (memory) RingHeader;
  header->header_bytes = sizeof(RingHeader);
  header->row_bytes = sizeof(CommRow);
  header->rows = kCommRows;
  header->slot_bytes = sizeof(EventSlot);
  header->slots = static_cast<uint32_t>(capacity());
  memory_.store(memory, std::memory_order_release);
}

uint64_t EventRing::record(const TraceEvent& event) noexcept {
  const uint64_t index = header().next.fetch_add(1, std::memory_order_relaxed);
  if (base::is_collective_sequence(event.op.matching_sequence))
    if (CommRow* at = row(event.op.comm))
      raise_to(event.phase == EventPhase::kBegin ? at->last_started : at->last_completed,
               event.op.matching_sequence);
  EventSlot& slot = slots()[index & mask_];
  uint64_t before = slot.stamp.load(std::memory_order_relaxed);
  const uint64_t writing = 2 * index + 1;
  // An odd stamp: another writer, one lap behind, is still in this slot. A larger stamp: a writer
  // is one lap ahead.
  if ((before & 1) != 0 || before > writing ||
      !slot.stamp.compare_exchange_strong(before, writing, std::memory_order_acquire,
                                          std::memory_order_relaxed)) {
    header().skipped.fetch_add(1, std::memory_order_relaxed);
    return index;
  }
  std::array<uint64_t, kEventWords> words{};
  std::memcpy(words.data(), &event, sizeof(event));
  for (size_t i = 0; i < kEventWords; ++i) slot.words[i].store(words[i], std::memory_order_release);
  slot.stamp.store(writing + 1, std::memory_order_release);
  // Prefetch the next slot, which has left the caches since it was last written.
  const auto* next = reinterpret_cast<const std::byte*>(&slots()[(index + 1) & mask_]);
  for (size_t at = 0; at < sizeof(EventSlot); at += kCacheLine) __builtin_prefetch(next + at, 1);
  return index;
}

void EventRing::mark_started(uint64_t index, uint64_t time_ns) noexcept {
  EventSlot& slot = slots()[index & mask_];
  uint64_t whole = 2 * index + 2;
  if (!slot.stamp.compare_exchange_strong(whole, 2 * index + 1, std::memory_order_acquire,
                                          std::memory_order_relaxed))
    return;  // overwritten meanwhile
  slot.words[kEnteredWord].store(time_ns, std::memory_order_release);
  slot.stamp.store(2 * index + 2, std::memory_order_release);
}

std::vector<EventRing::RecordedEvent> EventRing::read() const {
  const uint64_t end = header().next.load(std::memory_order_acquire);
  const uint64_t begin = end > capacity() ? end - capacity() : 0;
  std::vector<RecordedEvent> entries;
  entries.reserve(end - begin);
  for (uint64_t index = begin; index < end; ++index) {
    const EventSlot& slot = slots()[index & mask_];
    if (slot.stamp.load(std::memory_order_acquire) != 2 * index + 2) continue;
    std::array<uint64_t, kEventWords> words{};
    for (size_t i = 0; i < kEventWords; ++i)
      words[i] = slot.words[i].load(std::memory_order_acquire);
    if (slot.stamp.load(std::memory_order_relaxed) != 2 * index + 2) continue;
    entries.push_back({index, std::bit_cast<TraceEvent>(words)});
  }
  return entries;
}

CommRow* EventRing::row(uint32_t id) const noexcept {
  CommRow& at = rows()[id % kCommRows];
  return at.key.load(std::memory_order_relaxed) == uint64_t{id} + 1 ? &at : nullptr;
}

CommRow& EventRing::free_row(uint32_t& id) noexcept {
  // The order of preference: unused rows, ended init records, ended communicators by age, then idle
  // live ones, then busy ones, the youngest first. The oldest are kept, because a job usually waits
  // in those.
  const auto rank_of = [](const CommRow& row) {
    const uint64_t key = row.key.load(std::memory_order_relaxed);
    const uint64_t ended = row.ended_ns.load(std::memory_order_relaxed);
    const bool is_init_record =
        (row.flags.load(std::memory_order_relaxed) & CommRow::kInitializing) != 0;
    const bool is_idle = row.last_started.load(std::memory_order_relaxed) ==
                         row.last_completed.load(std::memory_order_relaxed);
    return key == 0                       ? std::pair(0, uint64_t{0})
           : ended != 0 && is_init_record ? std::pair(1, ended)
           : ended != 0                   ? std::pair(2, ended)
                                          : std::pair(is_idle ? 3 : 4, ~row.time_ns);
  };
  CommRow* best =
      std::min_element(rows(), rows() + kCommRows,
                       [&](const CommRow& a, const CommRow& b) { return rank_of(a) < rank_of(b); });
  const uint64_t key = best->key.load(std::memory_order_relaxed);
  // The row gets another id, so events with the old id do not find it.
  id = static_cast<uint32_t>(key == 0 ? static_cast<size_t>(best - rows()) : key - 1 + kCommRows);
  return *best;
}

uint32_t EventRing::add_communicator(const CommunicatorInfo& communicator) {
  std::lock_guard lock(rows_mutex_);
  uint32_t id = 0;
  CommRow& row = free_row(id);
  if (row.key.load(std::memory_order_relaxed) != 0 && is_open(row))  // replaced while open
    header().open_communicators.fetch_sub(1, std::memory_order_relaxed);
  row.key.store(0, std::memory_order_release);
  row.time_ns = now_ns();
  row.ended_ns.store(0, std::memory_order_relaxed);
  row.last_started.store(0, std::memory_order_relaxed);
  row.last_completed.store(0, std::memory_order_relaxed);
  row.rank = communicator.rank;
  row.size = communicator.size;
  row.membership = communicator.membership.value_or(0);
  row.identity = communicator.identity;
  copy_truncated(row.name, communicator.name);
  copy_truncated(row.backend, communicator.backend);
  const bool known = keep_members(row, communicator.members);
  row.flags.store((communicator.membership ? CommRow::kHasMembership : 0) |
                      (known ? 0 : CommRow::kUnknownMembers) |
                      (communicator.is_initializing ? CommRow::kInitializing : 0) |
                      (communicator.is_split ? CommRow::kSplit : 0),
                  std::memory_order_relaxed);
  row.key.store(uint64_t{id} + 1, std::memory_order_release);
  if (is_open(row)) header().open_communicators.fetch_add(1, std::memory_order_relaxed);
  if (header().rank.load(std::memory_order_relaxed) < 0)
    header().rank.store(global_rank(communicator), std::memory_order_relaxed);
  return id;
}

void EventRing::end_communicator(uint32_t id, bool finalized) noexcept {
  std::lock_guard lock(rows_mutex_);
  CommRow* at = row(id);
  if (at == nullptr) return;
  if (finalized) {
    if (is_open(*at)) header().open_communicators.fetch_sub(1, std::memory_order_relaxed);
    at->flags.fetch_or(CommRow::kFinalized, std::memory_order_relaxed);
  }
  at->ended_ns.store(now_ns(), std::memory_order_release);
}

std::string EventRing::communicator_name(uint32_t id) const {
  std::lock_guard lock(rows_mutex_);
  const CommRow* at = row(id);
  return at == nullptr ? "" : at->name.data();
}

uint64_t now_ns() noexcept {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

uint32_t kernel_thread_id() noexcept {
  // Read once per thread; the thread of a forked child has another id.
  static thread_local uint64_t generation = ~uint64_t{0};
  static thread_local uint32_t id = 0;
  if (generation != base::fork_generation()) {
    generation = base::fork_generation();
    id = static_cast<uint32_t>(::syscall(SYS_gettid));
  }
  return id;
}

}  // namespace torch::comms::tracing
