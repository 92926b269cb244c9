#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace torch::comms::transport {

// Shows which RemoteReadDescriptors of one side are valid, by words in memory that the other side
// reads. A word changes only when its descriptor is withdrawn, so in normal operation both sides
// find it in their caches.
//
// Threads: one, of the sender. The receiver compares with is_valid().
class ReadValidityWords {
 public:
  static constexpr uint32_t kSlots = 64;
  using Words = std::array<std::atomic<uint64_t>, kSlots>;

  // `words` are those of this side and lie inside of `memory`, which this object keeps alive.
  ReadValidityWords(std::shared_ptr<const void> memory, Words& words) noexcept;

  struct ValiditySlot {
    uint32_t slot;
    uint64_t word;
  };
  // Returns: a free slot with its word; nullopt if all kSlots slots are in use.
  std::optional<ValiditySlot> acquire() noexcept;
  // Frees a slot whose message has been read, or whose descriptor was never sent.
  void release(uint32_t slot) noexcept;
  // Withdraws the descriptor of `slot` and frees the slot. A receiver that reads what the memory
  // holds after this call also sees the changed word. Does nothing in a forked child, whose
  // descriptors are the parent's.
  void invalidate(uint32_t slot) noexcept;

  // Returns: whether memory that was read before this call was still the message that was described
  // with `slot` (below kSlots) and `word`.
  static bool is_valid(const Words& words, uint32_t slot, uint64_t word) noexcept;

 private:
  std::shared_ptr<const void> memory_;
  Words& words_;
  uint64_t free_ = ~uint64_t{0};  // bits
  uint64_t fork_generation_;
};

}  // namespace torch::comms::transport
