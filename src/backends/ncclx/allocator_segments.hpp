#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include <torchcomms/base/export.hpp>

// The memory segments of torch's caching allocator, and which of them a communicator has
// registered.
namespace torch::comms::ncclx {

struct AllocatorSegment {
  char* begin;
  size_t size_bytes;
  bool operator==(const AllocatorSegment&) const = default;
};

// The current segments, by device.
// Blocks: never; it takes no lock but its own.
// Threads: any.
class AllocatorSegments {
 public:
  // Returns: the segments of this process; empty before init_caching_allocator_hook().
  static AllocatorSegments& of_process();

  // Adds a segment; does nothing if it is present.
  void add(int device, const AllocatorSegment& segment);
  // Removes every segment that overlaps this one: if a part of a segment is freed, the whole
  // segment must be deregistered.
  void remove(int device, const AllocatorSegment& segment);
  // Returns: a number that grows with each change; 0: there was no change.
  uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }
  // Adds many segments at once, unless there was a change since `version`.
  // Returns: false if there was a change; nothing is added then.
  struct DeviceSegment {
    int device;
    AllocatorSegment segment;
  };
  bool add_all(uint64_t version, const std::vector<DeviceSegment>& all);

  // The segments of a device, each under a number that is never reused, and the version of this
  // state.
  struct State {
    uint64_t version;
    std::map<uint64_t, AllocatorSegment> segments;
  };
  State of(int device) const;

 private:
  void insert(int device, const AllocatorSegment& segment);

  mutable std::mutex mutex_;  // guards all members below; held to write version_
  std::map<int, std::map<uint64_t, AllocatorSegment>> by_device_;
  uint64_t next_ = 0;
  std::atomic<uint64_t> version_{0};
};

// The segments that one communicator has registered.
// Threads: one at a time.
class TrackedSegments {
 public:
  bool is_up_to_date(const AllocatorSegments& all) const noexcept {
    return version_ == all.version() || !is_supported_;
  }
  // Calls `remove` for each segment that was removed since the last call, then `add` for each new
  // one. If a callback returns false, neither is ever called again.
  using SegmentCallback = std::function<bool(const AllocatorSegment&)>;
  void update(const AllocatorSegments& all, int device, const SegmentCallback& add,
              const SegmentCallback& remove);

 private:
  uint64_t version_ = 0;
  bool is_supported_ = true;
  std::map<uint64_t, AllocatorSegment> tracked_;  // by number
};

// Makes AllocatorSegments::of_process() follow torch's caching allocator on all CUDA devices from
// now on. Communicators of ncclx then register these segments with their library before their next
// operation, and deregister freed segments before their addresses can be used again. Later calls do
// nothing.
// Throws: CommError(kUnsupported) if there is no such allocator.
// Threads: any.
TC_API void init_caching_allocator_hook();

}  // namespace torch::comms::ncclx
