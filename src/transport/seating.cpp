#include "transport/seating.hpp"

#include <sched.h>

#include <algorithm>

namespace torch::comms::transport {
namespace {

// The core this thread is on then, or -1 where it was not moved.
int move_to(int core) noexcept {
  cpu_set_t before, there, all;
  if (::sched_getaffinity(0, sizeof before, &before) != 0 || !CPU_ISSET(core, &before)) return -1;
  CPU_ZERO(&there);
  CPU_SET(core, &there);
  if (::sched_setaffinity(0, sizeof there, &there) != 0) return -1;
  const int now = ::sched_getcpu();
  if (::sched_setaffinity(0, sizeof before, &before) != 0) {
    // None of these is allowed any more: whatever is.
    std::fill_n(reinterpret_cast<unsigned char*>(&all), sizeof all, 0xff);
    ::sched_setaffinity(0, sizeof all, &all);
  }
  return now;
}

}  // namespace

int roomier_core(int core, std::span<const int> others, std::span<const int> allowed,
                 size_t from) noexcept {
  int best = -1;
  // `core` itself has this rank, too, and another one would have it.
  auto fewest = std::ranges::count(others, core);
  for (size_t i = 0; i < allowed.size(); ++i) {
    const int candidate = allowed[(from + i) % allowed.size()];
    if (candidate == core) continue;
    if (const auto there = std::ranges::count(others, candidate); there < fewest) {
      best = candidate;
      fewest = there;
    }
  }
  return best;
}

Seating::Seating(int rank, const Cores& cores) : rank_(rank), cores_(cores.list()) {}

void Seating::meet(int rank, Seat& mine, const Seat& theirs) {
  const std::lock_guard lock(mutex_);
  neighbours_.push_back({rank, &mine, &theirs});
  others_.reserve(neighbours_.size());
  shown_ = -1;
}

void Seating::forget(int rank) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(neighbours_, [&](const Neighbour& one) { return one.rank == rank; });
}

void Seating::show(int core) noexcept {
  if (core == shown_) return;
  shown_ = core;
  for (const auto& one : neighbours_)
    one.mine->store(static_cast<uint32_t>(core + 1), std::memory_order_relaxed);
}

bool Seating::look(Clock::time_point now) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const int core = lock ? ::sched_getcpu() : -1;
  if (core < 0) return false;
  show(core);
  if (now < rests_until_) return false;
  others_.clear();
  int before = 0;  // who moves before this one does: those with a higher rank
  for (const auto& one : neighbours_) {
    const int theirs = static_cast<int>(one.theirs->load(std::memory_order_relaxed)) - 1;
    if (theirs < 0) continue;
    others_.push_back(theirs);
    if (theirs == core && one.rank > rank_) ++before;
  }
  const int better = roomier_core(core, others_, cores_, static_cast<size_t>(rank_));
  looks_ = better < 0 ? 0 : looks_ + 1;
  if (looks_ < kLooks * (1 + before)) return false;
  looks_ = 0;
  rests_until_ = now + kRest;
  const int moved = move_to(better);
  if (moved >= 0) show(moved);
  return moved == better;
}

}  // namespace torch::comms::transport
