#include "backends/ncclx/allocator_segments.hpp"

#include <algorithm>

namespace torch::comms::ncclx {

AllocatorSegments& AllocatorSegments::of_process() {
  static auto* const all =
      new AllocatorSegments;  // never destroyed: the allocator calls it until the process exits
  return *all;
}

void AllocatorSegments::insert(int device, const AllocatorSegment& segment) {
  auto& here = by_device_[device];
  if (std::ranges::any_of(here, [&](const auto& one) { return one.second == segment; })) return;
  here.emplace(next_++, segment);
}

void AllocatorSegments::add(int device, const AllocatorSegment& segment) {
  const std::lock_guard lock(mutex_);
  insert(device, segment);
  version_.fetch_add(1, std::memory_order_release);
}

void AllocatorSegments::remove(int device, const AllocatorSegment& segment) {
  const std::lock_guard lock(mutex_);
  std::erase_if(by_device_[device], [&](const auto& one) {
    const auto& [number, known] = one;
    return known.begin < segment.begin + segment.size_bytes &&
           segment.begin < known.begin + known.size_bytes;
  });
  version_.fetch_add(1, std::memory_order_release);
}

bool AllocatorSegments::add_all(uint64_t version, const std::vector<DeviceSegment>& all) {
  const std::lock_guard lock(mutex_);
  if (version_.load(std::memory_order_relaxed) != version) return false;
  for (const auto& one : all) insert(one.device, one.segment);
  version_.fetch_add(1, std::memory_order_release);
  return true;
}

AllocatorSegments::State AllocatorSegments::of(int device) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_device_.find(device);
  return {version_.load(std::memory_order_relaxed),
          found == by_device_.end() ? std::map<uint64_t, AllocatorSegment>{} : found->second};
}

void TrackedSegments::update(const AllocatorSegments& all, int device, const SegmentCallback& add,
                             const SegmentCallback& remove) {
  const auto now = all.of(device);
  for (auto known = tracked_.begin(); is_supported_ && known != tracked_.end();) {
    if (now.segments.contains(known->first)) {
      ++known;
      continue;
    }
    is_supported_ = remove(known->second);
    known = tracked_.erase(known);
  }
  for (const auto& [number, segment] : now.segments) {
    if (!is_supported_ || tracked_.contains(number)) continue;
    is_supported_ = add(segment);
    tracked_.emplace(number, segment);
  }
  version_ = now.version;
}

}  // namespace torch::comms::ncclx
