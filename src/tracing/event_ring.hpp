#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "base/op_record.hpp"

namespace torch::comms::tracing {

enum class Phase : uint8_t { kBegin = 0, kEnd = 1 };

// One begin or end of an operation, as it happened.
struct Event {
  uint64_t time_ns = 0;  // steady clock
  uint32_t thread = 0;   // kernel thread id
  Phase phase = Phase::kBegin;
  bool ok = true;  // of an end: the operation succeeded
  base::OpRecord op;
};

// The last `capacity` events of the process, always on. Bounded: the oldest are overwritten.
//
// Threads: record() and read() from any thread, without a lock. A slot that is being written when
// another writer or a reader comes by is skipped, never torn; skipped writes are counted.
class TC_API EventRing {
 public:
  // `capacity` is rounded up to a power of two, at least 2.
  explicit EventRing(size_t capacity);

  void record(const Event& event) noexcept;

  struct Entry {
    uint64_t index;  // counts all events of the process; gaps were overwritten or skipped
    Event event;
  };
  // Whole events, oldest first.
  std::vector<Entry> read() const;

  size_t capacity() const noexcept { return mask_ + 1; }
  uint64_t recorded() const noexcept { return next_.load(std::memory_order_relaxed); }
  uint64_t skipped() const noexcept { return skipped_.load(std::memory_order_relaxed); }

  // A number for a communicator, to be used in OpRecord::comm. The last kNames names are kept.
  uint32_t name_communicator(const std::string& name);
  // "" once it was pushed out by newer names.
  std::string communicator(uint32_t id) const;

 private:
  static constexpr size_t kNames = 4096;
  static constexpr size_t kWords = 15;
  // `stamp` is 2 * index + 1 while the event `index` is written and 2 * index + 2 once it is whole.
  // The payload is in atomic words so that a reader racing with a writer is defined behaviour; the
  // stamp tells it to drop what it read.
  struct alignas(128) Slot {
    std::atomic<uint64_t> stamp{0};
    std::array<std::atomic<uint64_t>, kWords> words{};
  };
  static_assert(sizeof(Slot) == 128 && sizeof(Event) <= kWords * sizeof(uint64_t));

  size_t mask_;
  std::unique_ptr<Slot[]> slots_;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> skipped_{0};

  mutable std::mutex names_mutex_;  // guards the two below
  std::vector<std::string> names_;
  uint32_t next_name_ = 0;
};

// The ring of this process; its capacity is TORCHCOMM_EVENTS_CAPACITY, read once. Never destroyed.
TC_API EventRing& process_ring();

// Now, for Event::time_ns, and the calling thread, for Event::thread.
TC_API uint64_t now_ns() noexcept;
TC_API uint32_t this_thread() noexcept;

}  // namespace torch::comms::tracing
