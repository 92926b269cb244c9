#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ctran/window/shared_memory_block.hpp"
#include "transport/transport.hpp"

namespace torch::comms::ctran {

// What one member knows of a window: where the memory of all is, and the words that they signal.
// Operations in flight keep it. Constant once the window is open, but for the words and `closed`.
struct PeerWindows {
  struct PeerWindow {
    uint64_t bytes = 0, slots = 0;
    std::string metadata;
    int context_rank = -1;
    transport::Transport* link = nullptr;  // nullptr: this rank itself
    std::shared_ptr<const transport::RemoteMemory> memory, signal_words;

    // Loads and stores from here reach all of it.
    bool is_mapped() const noexcept {
      return link == nullptr ||
             ((bytes == 0 || !memory->mapped().empty()) && !signal_words->mapped().empty());
    }
    // Nothing is needed of its owner, either. With the engine's lock.
    bool is_passive_target() const {
      if (link == nullptr) return true;
      return link->state(context_rank) == transport::PeerState::kReady &&
             (is_mapped() ||
              (!signal_words->mapped().empty() && link->capabilities().has_passive_target));
    }
  };

  int rank = 0;
  transport::Bytes local_memory;
  bool is_local_shared = false;                     // it lies where peers of this host can map it
  std::shared_ptr<SharedMemoryBlock> signal_words;  // of this rank
  std::vector<PeerWindow> windows;                  // by rank
  std::atomic<bool> is_closed{false};               // by all members: nobody signals any more

  // One counter a member, each in a cache line of its own, which only that member raises; then the
  // slots, whose values are the users'. Offsets in bytes.
  static uint64_t signal_bytes(size_t members, uint64_t slots) noexcept {
    return members * kLine + slots * sizeof(uint64_t);
  }
  static uint64_t counter_offset(int member) noexcept {
    return static_cast<uint64_t>(member) * kLine;
  }
  uint64_t slot_offset(uint64_t slot) const noexcept {
    return windows.size() * kLine + slot * sizeof(uint64_t);
  }
  // What stands there now; all that was written before it is visible then.
  uint64_t read(uint64_t offset) const noexcept {
    auto* word = reinterpret_cast<uint64_t*>(signal_words->bytes().data() + offset);
    return std::atomic_ref(*word).load(std::memory_order_seq_cst);
  }

  static constexpr uint64_t kLine = 64;
};

}  // namespace torch::comms::ctran
