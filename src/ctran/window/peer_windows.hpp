#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ctran/window/shared_memory_block.hpp"
#include "transport/transport.hpp"

namespace torch::comms::ctran {

// The windows of all members as one member sees them: their memory, and the words in which members
// signal each other. Constant once the window is open, except the words and `is_closed`.
// Lifetime: operations in flight keep it.
struct PeerWindows {
  struct PeerWindow {
    uint64_t bytes = 0, slots = 0;
    std::string metadata;
    int context_rank = -1;
    transport::Transport* link = nullptr;  // nullptr: this rank's own window
    std::shared_ptr<const transport::RemoteMemory> memory, signal_words;

    // Returns: whether this process can load and store all of the peer's window.
    bool is_mapped() const noexcept {
      return link == nullptr ||
             ((bytes == 0 || !memory->mapped().empty()) && !signal_words->mapped().empty());
    }
    // Returns: whether operations need no progress of the owner, either. Requires the engine's
    // lock.
    bool is_passive_target() const {
      if (link == nullptr) return true;
      return link->state(context_rank) == transport::PeerState::kReady &&
             (is_mapped() ||
              (!signal_words->mapped().empty() && link->capabilities().has_passive_target));
    }
  };

  int rank = 0;
  transport::Bytes local_memory;
  bool is_local_shared = false;                     // peers of this host can map local_memory
  std::shared_ptr<SharedMemoryBlock> signal_words;  // of this rank
  std::vector<PeerWindow> windows;                  // by rank
  std::atomic<bool> is_closed{false};  // all members have closed it: no member signals any more

  // Layout of the signal words. First comes one counter per member, each in its own cache line,
  // which only that member raises. The slots follow; their values belong to the user.
  // Units: bytes.
  static uint64_t signal_bytes(size_t members, uint64_t slots) noexcept {
    return members * kLine + slots * sizeof(uint64_t);
  }
  static uint64_t counter_offset(int member) noexcept {
    return static_cast<uint64_t>(member) * kLine;
  }
  uint64_t slot_offset(uint64_t slot) const noexcept {
    return windows.size() * kLine + slot * sizeof(uint64_t);
  }
  // Returns: the word's current value. Everything that the writer wrote before that value is
  // visible.
  uint64_t read(uint64_t offset) const noexcept {
    auto* word = reinterpret_cast<uint64_t*>(signal_words->bytes().data() + offset);
    return std::atomic_ref(*word).load(std::memory_order_seq_cst);
  }

  static constexpr uint64_t kLine = 64;
};

}  // namespace torch::comms::ctran
