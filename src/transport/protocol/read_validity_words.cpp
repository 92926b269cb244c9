#include "transport/protocol/read_validity_words.hpp"

#include <bit>

#include "base/os/fork.hpp"

namespace torch::comms::transport {
namespace {

static_assert(ReadValidityWords::kSlots == 64 && std::atomic<uint64_t>::is_always_lock_free);

void fence() noexcept {
#if !defined(__SANITIZE_THREAD__)  // ThreadSanitizer has no fences and does not see CMA
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

ReadValidityWords::ReadValidityWords(std::shared_ptr<const void> memory, Words& words) noexcept
    : memory_(std::move(memory)), words_(words), fork_generation_(base::fork_generation()) {}

std::optional<ReadValidityWords::ValiditySlot> ReadValidityWords::acquire() noexcept {
  if (free_ == 0) return std::nullopt;
  const auto slot = static_cast<uint32_t>(std::countr_zero(free_));
  free_ &= free_ - 1;
  return ValiditySlot{slot, words_[slot].load(std::memory_order_relaxed)};
}

void ReadValidityWords::release(uint32_t slot) noexcept { free_ |= uint64_t{1} << slot; }

void ReadValidityWords::invalidate(uint32_t slot) noexcept {
  if (base::fork_generation() != fork_generation_) return;
  words_[slot].fetch_add(1, std::memory_order_relaxed);
  fence();
  release(slot);
}

bool ReadValidityWords::is_valid(const Words& words, uint32_t slot, uint64_t word) noexcept {
  fence();
  return words[slot].load(std::memory_order_relaxed) == word;
}

}  // namespace torch::comms::transport
