#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include <torchcomms/base/export.hpp>

// The memory that torch's caching allocator has of GPUs, and who has been told of it.
namespace torch::comms::ncclx {

struct AllocatorSegment {
  char* begin;
  size_t size_bytes;
  bool operator==(const AllocatorSegment&) const = default;
};

// What there is now, by device. Any thread; takes no lock but its own, and never waits.
class AllocatorSegments {
 public:
  // Those that init_caching_allocator_hook() brings; none before.
  static AllocatorSegments& of_process();

  // Nothing if it is there.
  void add(int device, const AllocatorSegment& segment);
  // With all that it is a part of: of a segment that goes in parts, nothing is left to be told of.
  void remove(int device, const AllocatorSegment& segment);
  // Grows with each change; 0: there was none.
  uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }
  // Many at once, unless there was a change since `version`: then nothing, and false.
  struct DeviceSegment {
    int device;
    AllocatorSegment segment;
  };
  bool add_all(uint64_t version, const std::vector<DeviceSegment>& all);

  // The segments of a device by a number that none had before, and the version of that.
  struct State {
    uint64_t version;
    std::map<uint64_t, AllocatorSegment> segments;
  };
  State of(int device) const;

 private:
  void insert(int device, const AllocatorSegment& segment);

  mutable std::mutex mutex_;  // guards all below; writers of version_ have it
  std::map<int, std::map<uint64_t, AllocatorSegment>> by_device_;
  uint64_t next_ = 0;
  std::atomic<uint64_t> version_{0};
};

// What one communicator has been told of. One thread at a time.
class TrackedSegments {
 public:
  bool is_up_to_date(const AllocatorSegments& all) const noexcept {
    return version_ == all.version() || !is_supported_;
  }
  // Calls `remove` for each segment that has gone since, then `add` for each that has come. One
  // that says false is never called again, nor is the other.
  using SegmentCallback = std::function<bool(const AllocatorSegment&)>;
  void update(const AllocatorSegments& all, int device, const SegmentCallback& add,
              const SegmentCallback& remove);

 private:
  uint64_t version_ = 0;
  bool is_supported_ = true;
  std::map<uint64_t, AllocatorSegment> tracked_;  // by their numbers
};

// From now on AllocatorSegments::of_process() has what torch's caching allocator has of all CUDA
// devices, as it comes and goes, so that communicators of ncclx tell their library of it: before
// their next operation, and of what has gone before its addresses can be used again. Once a
// process; later calls do nothing. Any thread. Throws CommError(kUnsupported) where there is no
// such allocator.
TC_API void init_caching_allocator_hook();

}  // namespace torch::comms::ncclx
