#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "transport/waiting/cpu_set.hpp"

namespace torch::comms::transport {

// Moves a waiting thread to another core of its host when too many ranks wait on one core. Each
// rank publishes its core in memory that it shares with each peer.
//
// The system moves a thread only when some core has nothing to run. Ranks that yield in turns while
// they wait keep all cores busy. So three of four ranks may stay on one of two cores for tens of
// milliseconds, in which everything takes twice as long.
//
// Threads: any.
class TC_API CoreBalancer {
 public:
  using Clock = std::chrono::steady_clock;
  using CoreSlot = std::atomic<uint32_t>;  // 1 + the core; 0: unknown
  // A rank moves after it has found a better core this many times in a row. It does not move again
  // for kMinMoveInterval.
  static constexpr int kConfirmations = 4;
  static constexpr std::chrono::milliseconds kMinMoveInterval{1};

  // `cores`: the cores that the rank may run on.
  CoreBalancer(int rank, const CpuSet& cores);

  // Adds a peer rank. Until remove_peer(), this rank publishes its core in `own_slot` and reads the
  // peer's core from `peer_slot`.
  void add_peer(int rank, CoreSlot& own_slot, const CoreSlot& peer_slot);
  // Removes a peer rank. Neither slot is used after this returns.
  void remove_peer(int rank) noexcept;
  // Publishes this thread's core and moves the thread if another core is better. A waiting thread
  // calls it before it yields. The thread's affinity mask is the same afterwards.
  // Returns: whether the thread was moved.
  bool rebalance(Clock::time_point now) noexcept;

 private:
  struct BalancedPeer {
    int rank;
    CoreSlot* own_slot;
    const CoreSlot* peer_slot;
  };
  void publish_core(int core) noexcept;

  const int rank_;
  const std::vector<int> cores_;
  std::mutex mutex_;  // guards all members below
  std::vector<BalancedPeer> peers_;
  std::vector<int> peer_cores_;  // their cores, as last read; a member to reuse its memory
  int published_core_ = -1;      // in the slots of all peers
  int confirmations_ = 0;        // results in a row that found a better core
  Clock::time_point next_move_{};
};

// Returns: the core of `allowed` with the fewest of `peer_cores`, if it has at least two ranks
// fewer than `core`, counting this rank; else -1. Among equal cores it is the first one from index
// `from` on.
TC_API int less_loaded_core(int core, std::span<const int> peer_cores, std::span<const int> allowed,
                            size_t from) noexcept;

}  // namespace torch::comms::transport
