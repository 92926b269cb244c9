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
// Threads: one, the sender's. The receiver compares with stands().
class OfferWords {
 public:
  static constexpr uint32_t kSlots = 64;
  using Words = std::array<std::atomic<uint64_t>, kSlots>;

  // `words` are this side's, inside of `memory`.
  OfferWords(std::shared_ptr<const void> memory, Words& words) noexcept;

  struct Lent {
    uint32_t slot;
    uint64_t word;
  };
  // Nothing: as many offers stand as there can be.
  std::optional<Lent> lend() noexcept;
  // The offer has been taken, or was never made.
  void give_back(uint32_t slot) noexcept;
  // What it offered is the message no more: what its memory becomes from here on is not seen before
  // that. Does nothing in a forked child, whose offers are the parent's.
  void withdraw(uint32_t slot) noexcept;

  // Whether what was read before is the message that was offered with this slot, below kSlots.
  static bool stands(const Words& words, uint32_t slot, uint64_t word) noexcept;

 private:
  std::shared_ptr<const void> memory_;
  Words& words_;
  uint64_t free_ = ~uint64_t{0};  // bits
  uint64_t fork_generation_;
};

}  // namespace torch::comms::transport
