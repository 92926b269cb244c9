#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

// Time and events of a simulation.
namespace torch::comms::sim {

// Picoseconds since the start: fine enough for one byte at 1 TB/s, and enough for 100 days.
using Ticks = int64_t;
inline constexpr Ticks kPerMicrosecond = 1'000'000;

// The end of simulated time, 13 days; see EventQueue::add(). Sums of a few times do not overflow.
inline constexpr Ticks kEnd = Ticks{1} << 60;

// Convert to Ticks, at most kEnd.
inline Ticks from_ps(double ps) noexcept {
  return ps < static_cast<double>(kEnd) ? std::llround(ps) : kEnd;
}
inline Ticks from_us(double us) noexcept { return from_ps(us * kPerMicrosecond); }
// Returns `time` + `by`, at most kEnd.
inline Ticks after(Ticks time, Ticks by) noexcept { return std::min(time + by, kEnd); }
inline double to_us(Ticks ticks) noexcept { return static_cast<double>(ticks) / kPerMicrosecond; }

// The pending events in the order of time; events of equal time in the order of add(). So a run
// depends only on its inputs.
template <class Event>
class EventQueue {
 public:
  // Throws: std::invalid_argument if `at` is not before kEnd, because the costs of the run are too
  // high.
  void add(Ticks at, Event event) {
    if (at >= kEnd) throw std::invalid_argument("the run takes over 13 days of simulated time");
    heap_.push_back({at, next_++, std::move(event)});
    std::push_heap(heap_.begin(), heap_.end(), later);
    peak_ = std::max(peak_, heap_.size());
  }
  bool empty() const noexcept { return heap_.empty(); }
  // Removes the next event and sets now() to its time.
  Event pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    now_ = heap_.back().at;
    Event event = std::move(heap_.back().event);
    heap_.pop_back();
    ++popped_;
    return event;
  }
  Ticks now() const noexcept { return now_; }
  int64_t popped() const noexcept { return popped_; }
  // Returns the largest size of the queue so far, in bytes.
  size_t peak_bytes() const noexcept { return peak_ * sizeof(ScheduledEvent); }

 private:
  struct ScheduledEvent {
    Ticks at;
    uint64_t number;
    Event event;
  };
  static bool later(const ScheduledEvent& a, const ScheduledEvent& b) noexcept {
    return a.at != b.at ? a.at > b.at : a.number > b.number;
  }
  std::vector<ScheduledEvent> heap_;
  uint64_t next_ = 0;
  int64_t popped_ = 0;
  size_t peak_ = 0;
  Ticks now_ = 0;
};

// Called now and then in long runs; may throw to end the run.
using SimInterruptCheck = std::function<void()>;

}  // namespace torch::comms::sim
