#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

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

  // Of what the ring has nothing of, a call on a window: it begins, and one that had begun ends.
  // Any thread.
  void begin(const side::Aside& aside) noexcept;
  void end() noexcept;

  uint64_t open() const override;
  side::Answer about(uint64_t number) const override;

 private:
  static constexpr uint64_t kUnknown = UINT64_MAX;

  void add_unrecorded(side::Whereabouts& place, bool is_open, int64_t began_ns) const;

  const int size_;
  std::atomic<uint64_t> comm_{kUnknown};
  mutable std::mutex mutex_;  // guards all below: of what the ring has nothing of
  side::Aside last_ = {};
  int64_t began_ns_ = 0;  // the last one
  uint64_t begun_ = 0, ended_ = 0;
};

}  // namespace torch::comms::beside
