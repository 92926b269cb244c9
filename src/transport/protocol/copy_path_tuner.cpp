#include "transport/protocol/copy_path_tuner.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace torch::comms::transport {
namespace {

using CopyPath = CopyPathTuner::CopyPath;

constexpr double kNewest = 0.25;  // weight of the newest sample
// A sample counts as at most this multiple of the known time, because an interruption says little.
constexpr double kMostTimes = 2.5;
constexpr double kClearly = 1.05, kSlow = 1.5;  // factors of time
static_assert(1 + (kMostTimes - 1) * kNewest < kSlow, "one interruption does not make a way slow");

CopyPath other(CopyPath path) noexcept {
  return path == CopyPath::kRemoteRead ? CopyPath::kCopyInOut : CopyPath::kRemoteRead;
}

}  // namespace

CopyPathTuner::CopyPathTuner(uint64_t first, uint64_t max_remote_read_bytes) noexcept
    : first_class_bytes_(first) {
  uint64_t most = first;
  for (auto& size_class : classes_) {
    size_class.default_path =
        most > max_remote_read_bytes ? CopyPath::kCopyInOut : CopyPath::kRemoteRead;
    most *= 2;
  }
}

size_t CopyPathTuner::class_number(uint64_t bytes) const noexcept {
  const auto powers = static_cast<size_t>(
      std::bit_width((std::max(bytes, first_class_bytes_) - 1) / first_class_bytes_));
  return std::min(powers, classes_.size() - 1);
}

double CopyPathTuner::smoothed(double average, double sample) noexcept {
  return average == 0 ? sample
                      : average + (std::min(sample, kMostTimes * average) - average) * kNewest;
}

CopyPath CopyPathTuner::upcoming(const CopySizeClass& size_class) noexcept {
  return size_class.until_probe > 0 ? size_class.default_path : other(size_class.default_path);
}

CopyPath CopyPathTuner::preview(uint64_t bytes) const noexcept { return upcoming(class_of(bytes)); }

CopyPath CopyPathTuner::choose(uint64_t bytes) noexcept {
  auto& size_class = class_of(bytes);
  const CopyPath path = upcoming(size_class);
  if (size_class.until_probe > 0) --size_class.until_probe;
  return path;
}

void CopyPathTuner::add_sample(CopyPath path, uint64_t bytes,
                               std::chrono::nanoseconds time) noexcept {
  auto& size_class = class_of(bytes);
  const double now = std::max(1.0, static_cast<double>(time.count())) / static_cast<double>(bytes);
  if (path != size_class.default_path) {
    size_class.probed_ns_a_byte =
        size_class.probes++ == 0 ? now : std::min(size_class.probed_ns_a_byte, now);
    if (size_class.probes == kProbeMessages) update_default(size_class);
    return;
  }
  auto& rate = size_class.ns_a_byte;
  rate = smoothed(rate, now);
  size_class.min_ns_a_byte =
      size_class.min_ns_a_byte == 0 ? rate : std::min(size_class.min_ns_a_byte, rate);
  if (rate < kSlow * size_class.min_ns_a_byte) return;
  size_class.min_ns_a_byte = rate;
  size_class.interval = std::min(size_class.interval, min_interval(size_class));
  size_class.until_probe = std::min(size_class.until_probe, size_class.interval);
}

// Returns: the interval, in messages, at which probes cost at most kMaxProbeOverhead.
uint32_t CopyPathTuner::min_interval(const CopySizeClass& size_class) noexcept {
  if (size_class.probed_ns_a_byte <= size_class.ns_a_byte) return kFirstProbe;
  const double overhead = kProbeMessages * (size_class.probed_ns_a_byte / size_class.ns_a_byte - 1);
  return static_cast<uint32_t>(
      std::clamp<double>(overhead / kMaxProbeOverhead, kFirstProbe, kLastProbe));
}

// Chooses the default path after a probe.
void CopyPathTuner::update_default(CopySizeClass& size_class) noexcept {
  size_class.probes = 0;
  if (size_class.ns_a_byte > kClearly * size_class.probed_ns_a_byte) {
    size_class.default_path = other(size_class.default_path);
    std::swap(size_class.ns_a_byte, size_class.probed_ns_a_byte);
    size_class.min_ns_a_byte = size_class.ns_a_byte;
    size_class.interval = kFirstProbe;
  } else {
    const uint32_t bounded = std::min(min_interval(size_class), kMaxGrowth * size_class.interval);
    size_class.interval = std::min(std::max(2 * size_class.interval, bounded), kLastProbe);
  }
  size_class.until_probe = size_class.interval;
}

}  // namespace torch::comms::transport
