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

// On which core each rank of a host was when it last waited, in memory that it shares with the
// others; and who moves where too many are on one.
//
// The system moves a thread when some core has nothing to run. Ranks that give their core away in
// turns while they wait keep all cores busy, so three of four ranks may stay on one of two cores
// for tens of milliseconds, in which everything takes twice as long.
//
// Threads: any.
class TC_API CoreBalancer {
 public:
  using Clock = std::chrono::steady_clock;
  using CoreSlot = std::atomic<uint32_t>;  // 1 + the core; 0: not known
  // How often in a row a rank sees that there is a better core, before it moves there; it does not
  // move again for a while.
  static constexpr int kConfirmations = 4;
  static constexpr std::chrono::milliseconds kMinMoveInterval{1};

  // For a rank that may run on `cores`.
  CoreBalancer(int rank, const CpuSet& cores);

  // From here to remove_peer(), `mine` says where this rank is, and `theirs` where the other one
  // is.
  void add_peer(int rank, CoreSlot& mine, const CoreSlot& theirs);
  // Returns when neither is looked at any more.
  void remove_peer(int rank) noexcept;
  // For who is about to give its core away: says where this thread is, and has it moved if that is
  // better. Its affinity is the same afterwards. True: it was moved.
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
  std::mutex mutex_;  // of all that follows
  std::vector<BalancedPeer> peers_;
  std::vector<int> peer_cores_;  // their cores, as last seen: kept for its memory
  int published_core_ = -1;      // to all of them
  int confirmations_ = 0;        // in a row that found a better core
  Clock::time_point next_move_{};
};

// The one of `allowed` with the fewest of `others`, where that is at least two fewer than are on
// `core`, this rank among them; else -1. Of equals the first one from place `from` on.
TC_API int less_loaded_core(int core, std::span<const int> others, std::span<const int> allowed,
                            size_t from) noexcept;

}  // namespace torch::comms::transport
