#include "transport/waiting/core_balancer.hpp"

#include <sched.h>

#include <algorithm>

namespace torch::comms::transport {
namespace {

// Moves this thread.
// Returns: the core this thread is on afterwards; -1 if it was not moved.
int move_to(int core) noexcept {
  cpu_set_t before, target, all;
  if (::sched_getaffinity(0, sizeof before, &before) != 0 || !CPU_ISSET(core, &before)) return -1;
  CPU_ZERO(&target);
  CPU_SET(core, &target);
  if (::sched_setaffinity(0, sizeof target, &target) != 0) return -1;
  const int now = ::sched_getcpu();
  if (::sched_setaffinity(0, sizeof before, &before) != 0) {
    // No core of the old mask is allowed any more: allow all cores that the system permits.
    std::fill_n(reinterpret_cast<unsigned char*>(&all), sizeof all, 0xff);
    ::sched_setaffinity(0, sizeof all, &all);
  }
  return now;
}

}  // namespace

int less_loaded_core(int core, std::span<const int> peer_cores, std::span<const int> allowed,
                     size_t from) noexcept {
  int best = -1;
  // `core` has this rank, too, and another core would have it after a move.
  auto fewest = std::ranges::count(peer_cores, core);
  for (size_t i = 0; i < allowed.size(); ++i) {
    const int candidate = allowed[(from + i) % allowed.size()];
    if (candidate == core) continue;
    if (const auto load = std::ranges::count(peer_cores, candidate); load < fewest) {
      best = candidate;
      fewest = load;
    }
  }
  return best;
}

CoreBalancer::CoreBalancer(int rank, const CpuSet& cores) : rank_(rank), cores_(cores.list()) {}

void CoreBalancer::add_peer(int rank, CoreSlot& own_slot, const CoreSlot& peer_slot) {
  const std::lock_guard lock(mutex_);
  peers_.push_back({rank, &own_slot, &peer_slot});
  peer_cores_.reserve(peers_.size());
  published_core_ = -1;
}

void CoreBalancer::remove_peer(int rank) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(peers_, [&](const BalancedPeer& one) { return one.rank == rank; });
}

void CoreBalancer::publish_core(int core) noexcept {
  if (core == published_core_) return;
  published_core_ = core;
  for (const auto& one : peers_)
    one.own_slot->store(static_cast<uint32_t>(core + 1), std::memory_order_relaxed);
}

bool CoreBalancer::rebalance(Clock::time_point now) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const int core = lock ? ::sched_getcpu() : -1;
  if (core < 0) return false;
  publish_core(core);
  if (now < next_move_) return false;
  peer_cores_.clear();
  int before = 0;  // peers that move before this rank: those with a higher rank
  for (const auto& one : peers_) {
    const int peer_core = static_cast<int>(one.peer_slot->load(std::memory_order_relaxed)) - 1;
    if (peer_core < 0) continue;
    peer_cores_.push_back(peer_core);
    if (peer_core == core && one.rank > rank_) ++before;
  }
  const int better = less_loaded_core(core, peer_cores_, cores_, static_cast<size_t>(rank_));
  confirmations_ = better < 0 ? 0 : confirmations_ + 1;
  if (confirmations_ < kConfirmations * (1 + before)) return false;
  confirmations_ = 0;
  next_move_ = now + kMinMoveInterval;
  const int moved = move_to(better);
  if (moved >= 0) publish_core(moved);
  return moved == better;
}

}  // namespace torch::comms::transport
