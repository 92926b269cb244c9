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

CopyPath other(CopyPath way) noexcept {
  return way == CopyPath::kRemoteRead ? CopyPath::kCopyInOut : CopyPath::kRemoteRead;
}

}  // namespace

CopyPathTuner::CopyPathTuner(uint64_t first, uint64_t most_fetched) noexcept
    : first_class_bytes_(first) {
  uint64_t most = first;
  for (auto& known : classes_) {
    known.default_path = most > most_fetched ? CopyPath::kCopyInOut : CopyPath::kRemoteRead;
    most *= 2;
  }
}

size_t CopyPathTuner::class_number(uint64_t bytes) const noexcept {
  const auto powers = static_cast<size_t>(
      std::bit_width((std::max(bytes, first_class_bytes_) - 1) / first_class_bytes_));
  return std::min(powers, classes_.size() - 1);
}

double CopyPathTuner::smoothed(double known, double now) noexcept {
  return known == 0 ? now : known + (std::min(now, kMostTimes * known) - known) * kNewest;
}

CopyPath CopyPathTuner::upcoming(const CopySizeClass& known) noexcept {
  return known.until_probe > 0 ? known.default_path : other(known.default_path);
}

CopyPath CopyPathTuner::preview(uint64_t bytes) const noexcept { return upcoming(class_of(bytes)); }

CopyPath CopyPathTuner::choose(uint64_t bytes) noexcept {
  auto& known = class_of(bytes);
  const CopyPath way = upcoming(known);
  if (known.until_probe > 0) --known.until_probe;
  return way;
}

void CopyPathTuner::add_sample(CopyPath way, uint64_t bytes,
                               std::chrono::nanoseconds time) noexcept {
  auto& known = class_of(bytes);
  const double now = std::max(1.0, static_cast<double>(time.count())) / static_cast<double>(bytes);
  if (way != known.default_path) {
    known.probed_ns_a_byte = known.probes++ == 0 ? now : std::min(known.probed_ns_a_byte, now);
    if (known.probes == kProbeMessages) update_default(known);
    return;
  }
  auto& rate = known.ns_a_byte;
  rate = smoothed(rate, now);
  known.min_ns_a_byte = known.min_ns_a_byte == 0 ? rate : std::min(known.min_ns_a_byte, rate);
  if (rate < kSlow * known.min_ns_a_byte) return;
  known.min_ns_a_byte = rate;
  known.interval = std::min(known.interval, min_interval(known));
  known.until_probe = std::min(known.until_probe, known.interval);
}

// Returns: the interval, in messages, at which probes cost at most kMaxProbeOverhead.
uint32_t CopyPathTuner::min_interval(const CopySizeClass& known) noexcept {
  if (known.probed_ns_a_byte <= known.ns_a_byte) return kFirstProbe;
  const double lost = kProbeMessages * (known.probed_ns_a_byte / known.ns_a_byte - 1);
  return static_cast<uint32_t>(
      std::clamp<double>(lost / kMaxProbeOverhead, kFirstProbe, kLastProbe));
}

// Chooses the default path after a probe.
void CopyPathTuner::update_default(CopySizeClass& known) noexcept {
  known.probes = 0;
  if (known.ns_a_byte > kClearly * known.probed_ns_a_byte) {
    known.default_path = other(known.default_path);
    std::swap(known.ns_a_byte, known.probed_ns_a_byte);
    known.min_ns_a_byte = known.ns_a_byte;
    known.interval = kFirstProbe;
  } else {
    const uint32_t bounded = std::min(min_interval(known), kMaxGrowth * known.interval);
    known.interval = std::min(std::max(2 * known.interval, bounded), kLastProbe);
  }
  known.until_probe = known.interval;
}

}  // namespace torch::comms::transport
