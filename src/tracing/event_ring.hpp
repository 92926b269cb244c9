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

// The description of a communicator for readers of the ring.
struct CommunicatorInfo {
  std::string_view name, backend = {};
  int rank = -1, size = -1;                // -1: not connected
  std::vector<int> members = {};           // global ranks, in rank order; empty: unknown
  std::optional<int64_t> membership = {};  // of a communicator that can be reconfigured
  uint64_t identity = 0;                   // shared by its members; 0: unknown
  int global_rank = -1;                    // of this process, if `rank` does not show it
  bool is_initializing = false;            // an init record: rank and size are those expected
  bool is_split = false;                   // of an init record: it is a split
};

// The last `capacity` events of the process and its communicators. Recording is always on. The
// oldest events are overwritten. The memory layout is that of ring_layout.hpp, so that the ring can
// lie in a file.
//
// Threads: any, except move_to(). record(), mark_started() and read() take no lock. A slot that is
// being written is skipped by other writers and readers, never torn; skipped writes are counted.
// torn; skipped writes are counted.
class TC_API EventRing {
 public:
  // `capacity` is rounded up to a power of two, at least 2.
  // Throws: CommError if there is no memory.
  explicit EventRing(size_t capacity);

  // Records an event. Returns: its index, for mark_started().
  uint64_t record(const TraceEvent& event) noexcept;
  // Records that the operation whose begin is event `index` has started, for example left its
  // queue.
  void mark_started(uint64_t index, uint64_t time_ns) noexcept;

  struct RecordedEvent {
    uint64_t index;  // counts all events of the process; missing ones were overwritten or skipped
    TraceEvent event;
  };
  // Returns the complete events, oldest first.
  std::vector<RecordedEvent> read() const;

  size_t capacity() const noexcept { return mask_ + 1; }
  uint64_t recorded() const noexcept { return header().next.load(std::memory_order_relaxed); }
  uint64_t skipped() const noexcept { return header().skipped.load(std::memory_order_relaxed); }

  // Adds a communicator. Returns: its id, for OpRecord::comm. The ring keeps kCommRows
  // communicators and replaces ended ones first.
  uint32_t add_communicator(const CommunicatorInfo& communicator);
  void end_communicator(uint32_t id, bool finalized) noexcept;
  // Returns the communicator's name; "" if newer ones have replaced it.
  std::string communicator_name(uint32_t id) const;

  // The mutex is held around a fork, so that the child gets it unlocked.
  std::mutex& rows_mutex() const noexcept { return rows_mutex_; }

  RingHeader& header() const noexcept { return *reinterpret_cast<RingHeader*>(memory()); }
  size_t size_bytes() const noexcept;
  // Moves the ring to `memory`, which must be size_bytes() zero bytes and outlive the ring. Events
  // and communicators are not copied. No thread may be recording.
  void move_to(std::byte* memory) noexcept;

 private:
  std::byte* memory() const noexcept { return memory_.load(std::memory_order_acquire); }
  CommRow* rows() const noexcept;
  EventSlot* slots() const noexcept;
  CommRow* row(uint32_t id) const noexcept;  // nullptr if the row has another id
  CommRow& free_row(uint32_t& id) noexcept;  // call with rows_mutex_ held

  size_t mask_;
  base::Mapping own_;
  std::atomic<std::byte*> memory_;
  mutable std::mutex rows_mutex_;  // guards the assignment of rows to communicators
};

// The time for TraceEvent::time_ns, and the calling thread for TraceEvent::thread.
TC_API uint64_t now_ns() noexcept;
TC_API uint32_t kernel_thread_id() noexcept;

}  // namespace torch::comms::tracing
