#pragma once

#include <atomic>
#include <cstdint>

#include "side/member.hpp"

namespace torch::comms::beside {

// What the event ring of this process has of one communicator: so that what its ranks compare costs
// no call anything. Knows nothing of calls that the ring has overwritten, 4,000 by default.
class Record final : public side::Diary {
 public:
  // Of a communicator of `size` ranks.
  explicit Record(int size) : size_(size) {}

  // See Insight::recorded_as(); before that nothing is known.
  void is(uint32_t comm) noexcept { comm_.store(comm, std::memory_order_release); }
  // Number of the last collective that was called.
  uint64_t called() const noexcept;

  uint64_t open() const override;
  side::Answer about(uint64_t number) const override;

 private:
  static constexpr uint64_t kUnknown = UINT64_MAX;

  const int size_;
  std::atomic<uint64_t> comm_{kUnknown};
};

}  // namespace torch::comms::beside
