#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace torch::comms::transport {

// Which of one side's offers stand: words in memory that the other side reads, too. A word changes
// when its offer is withdrawn and at no other time, so while all goes well both sides find it in
// their caches.
//
// Threads: one, the sender's. The receiver compares with is_valid().
class ReadValidityWords {
 public:
  static constexpr uint32_t kSlots = 64;
  using Words = std::array<std::atomic<uint64_t>, kSlots>;

  // `words` are this side's, inside of `memory`.
  ReadValidityWords(std::shared_ptr<const void> memory, Words& words) noexcept;

  struct ValiditySlot {
    uint32_t slot;
    uint64_t word;
  };
  // Nothing: as many offers stand as there can be.
  std::optional<ValiditySlot> acquire() noexcept;
  // The offer has been taken, or was never made.
  void release(uint32_t slot) noexcept;
  // What it offered is the message no more: what its memory becomes from here on is not seen before
  // that. Does nothing in a forked child, whose offers are the parent's.
  void invalidate(uint32_t slot) noexcept;

  // Whether what was read before is the message that was offered with this slot, below kSlots.
  static bool is_valid(const Words& words, uint32_t slot, uint64_t word) noexcept;

 private:
  std::shared_ptr<const void> memory_;
  Words& words_;
  uint64_t free_ = ~uint64_t{0};  // bits
  uint64_t fork_generation_;
};

}  // namespace torch::comms::transport
