#include "transport/copy_choice.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace torch::comms::transport {
namespace {

using Way = CopyChoice::Way;

constexpr double kNewest = 0.25;    // its weight
constexpr double kMostTimes = 2.5;  // of what was known: who was interrupted says little
constexpr double kClearly = 1.05, kSlow = 1.5;  // times as long
static_assert(1 + (kMostTimes - 1) * kNewest < kSlow, "one interruption does not make a way slow");

Way other(Way way) noexcept { return way == Way::kFetch ? Way::kChannel : Way::kFetch; }

}  // namespace

CopyChoice::CopyChoice(uint64_t first, uint64_t most_fetched) noexcept : first_(first) {
  uint64_t most = first;
  for (auto& known : classes_) {
    known.usual = most > most_fetched ? Way::kChannel : Way::kFetch;
    most *= 2;
  }
}

size_t CopyChoice::class_number(uint64_t bytes) const noexcept {
  const auto powers = static_cast<size_t>(std::bit_width((std::max(bytes, first_) - 1) / first_));
  return std::min(powers, classes_.size() - 1);
}

double CopyChoice::averaged(double known, double now) noexcept {
  return known == 0 ? now : known + (std::min(now, kMostTimes * known) - known) * kNewest;
}

Way CopyChoice::upcoming(const SizeClass& known) noexcept {
  return known.until_try > 0 ? known.usual : other(known.usual);
}

Way CopyChoice::upcoming(uint64_t bytes) const noexcept { return upcoming(class_of(bytes)); }

Way CopyChoice::next(uint64_t bytes) noexcept {
  auto& known = class_of(bytes);
  const Way way = upcoming(known);
  if (known.until_try > 0) --known.until_try;
  return way;
}

void CopyChoice::took(Way way, uint64_t bytes, std::chrono::nanoseconds time) noexcept {
  auto& known = class_of(bytes);
  const double now = std::max(1.0, static_cast<double>(time.count())) / static_cast<double>(bytes);
  if (way != known.usual) {
    known.tried = known.tries++ == 0 ? now : std::min(known.tried, now);
    if (known.tries == kTries) judge(known);
    return;
  }
  auto& rate = known.ns_a_byte;
  rate = averaged(rate, now);
  known.least = known.least == 0 ? rate : std::min(known.least, rate);
  if (rate < kSlow * known.least) return;
  known.least = rate;
  known.interval = std::min(known.interval, soonest(known));
  known.until_try = std::min(known.until_try, known.interval);
}

// After so many messages tries cost as little as they may.
uint32_t CopyChoice::soonest(const SizeClass& known) noexcept {
  if (known.tried <= known.ns_a_byte) return kFirstTry;
  const double lost = kTries * (known.tried / known.ns_a_byte - 1);
  return static_cast<uint32_t>(std::clamp<double>(lost / kMostLost, kFirstTry, kLastTry));
}

// The other way has been tried.
void CopyChoice::judge(SizeClass& known) noexcept {
  known.tries = 0;
  if (known.ns_a_byte > kClearly * known.tried) {
    known.usual = other(known.usual);
    std::swap(known.ns_a_byte, known.tried);
    known.least = known.ns_a_byte;
    known.interval = kFirstTry;
  } else {
    const uint32_t bounded = std::min(soonest(known), kMostGrowth * known.interval);
    known.interval = std::min(std::max(2 * known.interval, bounded), kLastTry);
  }
  known.until_try = known.interval;
}

}  // namespace torch::comms::transport
