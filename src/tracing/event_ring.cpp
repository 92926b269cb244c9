#include "tracing/event_ring.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <type_traits>

#include <torchcomms/base/error.hpp>

#include "base/env.hpp"
#include "base/fork.hpp"

namespace torch::comms::tracing {

static_assert(std::is_trivially_copyable_v<Event>);

EventRing::EventRing(size_t capacity)
    : mask_(std::bit_ceil(std::max<size_t>(capacity, 2)) - 1),
      slots_(std::make_unique<Slot[]>(mask_ + 1)) {}

void EventRing::record(const Event& event) noexcept {
  const uint64_t index = next_.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = slots_[index & mask_];
  uint64_t before = slot.stamp.load(std::memory_order_relaxed);
  const uint64_t writing = 2 * index + 1;
  // Odd: another writer is still in this slot, a whole lap behind. Larger: one is a lap ahead.
  if ((before & 1) != 0 || before > writing ||
      !slot.stamp.compare_exchange_strong(before, writing, std::memory_order_acquire,
                                          std::memory_order_relaxed)) {
    skipped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  uint64_t words[kWords] = {};
  std::memcpy(words, &event, sizeof(event));
  for (size_t i = 0; i < (sizeof(Event) + 7) / 8; ++i)
    slot.words[i].store(words[i], std::memory_order_release);
  slot.stamp.store(writing + 1, std::memory_order_release);
}

std::vector<EventRing::Entry> EventRing::read() const {
  const uint64_t end = next_.load(std::memory_order_acquire);
  const uint64_t begin = end > capacity() ? end - capacity() : 0;
  std::vector<Entry> entries;
  entries.reserve(end - begin);
  for (uint64_t index = begin; index < end; ++index) {
    const Slot& slot = slots_[index & mask_];
    if (slot.stamp.load(std::memory_order_acquire) != 2 * index + 2) continue;
    uint64_t words[kWords] = {};
    for (size_t i = 0; i < kWords; ++i) words[i] = slot.words[i].load(std::memory_order_acquire);
    if (slot.stamp.load(std::memory_order_relaxed) != 2 * index + 2) continue;
    Entry entry{index, {}};
    std::memcpy(&entry.event, words, sizeof(Event));
    entries.push_back(entry);
  }
  return entries;
}

uint32_t EventRing::name_communicator(const std::string& name) {
  std::lock_guard lock(names_mutex_);
  const uint32_t id = next_name_++;
  if (names_.size() < kNames)
    names_.push_back(name);
  else
    names_[id % kNames] = name;
  return id;
}

std::string EventRing::communicator(uint32_t id) const {
  std::lock_guard lock(names_mutex_);
  if (id >= next_name_ || next_name_ - id > kNames) return {};
  return names_[id % kNames];
}

EventRing& process_ring() {
  static EventRing* ring = [] {
    constexpr int kLargest = 1 << 22;
    const int capacity = env_to_value<int>("TORCHCOMM_EVENTS_CAPACITY", 8192);
    if (capacity < 2 || capacity > kLargest)
      throw CommError(Errc::kInvalidArgument, "environment variable TORCHCOMM_EVENTS_CAPACITY='" +
                                                  std::to_string(capacity) +
                                                  "' is not allowed: expected 2 to " +
                                                  std::to_string(kLargest));
    return new EventRing(static_cast<size_t>(capacity));
  }();
  return *ring;
}

uint64_t now_ns() noexcept {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

uint32_t this_thread() noexcept {
  // Asked once a thread; a forked child's thread has another id.
  static thread_local uint64_t generation = ~uint64_t{0};
  static thread_local uint32_t id = 0;
  if (generation != base::fork_generation()) {
    generation = base::fork_generation();
    id = static_cast<uint32_t>(::syscall(SYS_gettid));
  }
  return id;
}

}  // namespace torch::comms::tracing
