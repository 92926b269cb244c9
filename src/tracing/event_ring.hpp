#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"
#include "tracing/ring_layout.hpp"

namespace torch::comms::tracing {

// A communicator, as whoever reads the ring shall know it.
struct CommunicatorInfo {
  std::string_view name, backend = {};
  int rank = -1, size = -1;                // -1: not connected
  std::vector<int> members = {};           // global ranks, in rank order; empty: not known
  std::optional<int64_t> membership = {};  // of one that can be reconfigured
  uint64_t identity = 0;                   // that its members share; 0: none is known
  int global_rank = -1;                    // global rank of this process, where `rank` is not
  bool is_initializing = false;            // rank and size are those that it will have
  bool is_split = false;                   // of one that is being made
};

// The last `capacity` events of the process, always on, and who the communicators are. Bounded: the
// oldest are overwritten. Lies in memory as ring_layout.hpp says, so that it can be a file.
//
// Threads: all methods but move_to() from any thread; record(), mark_started() and read() without a
// lock. A slot that is being written when another writer or a reader comes by is skipped, never
// torn; skipped writes are counted.
class TC_API EventRing {
 public:
  // `capacity` is rounded up to a power of two, at least 2. Throws CommError where there is no
  // memory.
  explicit EventRing(size_t capacity);

  // Returns what mark_started() knows the event by.
  uint64_t record(const TraceEvent& event) noexcept;
  // The operation whose begin is event `index` has left the queue.
  void mark_started(uint64_t index, uint64_t time_ns) noexcept;

  struct RecordedEvent {
    uint64_t index;  // counts all events of the process; gaps were overwritten or skipped
    TraceEvent event;
  };
  // Whole events, oldest first.
  std::vector<RecordedEvent> read() const;

  size_t capacity() const noexcept { return mask_ + 1; }
  uint64_t recorded() const noexcept { return header().next.load(std::memory_order_relaxed); }
  uint64_t skipped() const noexcept { return header().skipped.load(std::memory_order_relaxed); }

  // A number for a communicator, to be used in OpRecord::comm. Of the last kCommRows at least those
  // that have not ended are kept.
  uint32_t add_communicator(const CommunicatorInfo& communicator);
  void end_communicator(uint32_t id, bool finalized) noexcept;
  // Its name, "" once it was pushed out by newer ones.
  std::string communicator_name(uint32_t id) const;

  // Held around a fork, so that the child has it.
  std::mutex& rows_mutex() const noexcept { return rows_mutex_; }

  RingHeader& header() const noexcept { return *reinterpret_cast<RingHeader*>(memory()); }
  size_t size_bytes() const noexcept;
  // Goes on in `memory`, of size_bytes() zeroes, which stays as long as the ring; what was recorded
  // before stays behind. Nobody may be recording.
  void move_to(std::byte* memory) noexcept;

 private:
  std::byte* memory() const noexcept { return memory_.load(std::memory_order_acquire); }
  CommRow* rows() const noexcept;
  EventSlot* slots() const noexcept;
  CommRow* row(uint32_t id) const noexcept;  // nullptr once it is another's
  CommRow& free_row(uint32_t& id) noexcept;  // rows_mutex_ held

  size_t mask_;
  base::Mapping own_;
  std::atomic<std::byte*> memory_;
  mutable std::mutex rows_mutex_;  // guards who is in a row
};

// Now, for TraceEvent::time_ns, and the calling thread, for TraceEvent::thread.
TC_API uint64_t now_ns() noexcept;
TC_API uint32_t kernel_thread_id() noexcept;

}  // namespace torch::comms::tracing
