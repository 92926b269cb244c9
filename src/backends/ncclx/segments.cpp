#include "backends/ncclx/segments.hpp"

#include <algorithm>

namespace torch::comms::ncclx {

Segments& Segments::of_process() {
  static auto* const all = new Segments;  // the allocator calls until the very end
  return *all;
}

void Segments::insert(int device, const Segment& segment) {
  auto& here = by_device_[device];
  if (std::ranges::any_of(here, [&](const auto& one) { return one.second == segment; })) return;
  here.emplace(next_++, segment);
}

void Segments::add(int device, const Segment& segment) {
  const std::lock_guard lock(mutex_);
  insert(device, segment);
  version_.fetch_add(1, std::memory_order_release);
}

void Segments::remove(int device, const Segment& segment) {
  const std::lock_guard lock(mutex_);
  std::erase_if(by_device_[device], [&](const auto& one) {
    const auto& [number, known] = one;
    return known.begin < segment.begin + segment.size_bytes &&
           segment.begin < known.begin + known.size_bytes;
  });
  version_.fetch_add(1, std::memory_order_release);
}

bool Segments::add_all(uint64_t version, const std::vector<Placed>& all) {
  const std::lock_guard lock(mutex_);
  if (version_.load(std::memory_order_relaxed) != version) return false;
  for (const auto& one : all) insert(one.device, one.segment);
  version_.fetch_add(1, std::memory_order_release);
  return true;
}

Segments::State Segments::of(int device) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_device_.find(device);
  return {version_.load(std::memory_order_relaxed),
          found == by_device_.end() ? std::map<uint64_t, Segment>{} : found->second};
}

void Followed::follow(const Segments& all, int device, const Tell& add, const Tell& remove) {
  const auto now = all.of(device);
  for (auto known = known_.begin(); is_able_ && known != known_.end();) {
    if (now.segments.contains(known->first)) {
      ++known;
      continue;
    }
    is_able_ = remove(known->second);
    known = known_.erase(known);
  }
  for (const auto& [number, segment] : now.segments) {
    if (!is_able_ || known_.contains(number)) continue;
    is_able_ = add(segment);
    known_.emplace(number, segment);
  }
  version_ = now.version;
}

}  // namespace torch::comms::ncclx
