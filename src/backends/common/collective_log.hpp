#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "base/op_record.hpp"
#include "core/observe/operation_observer.hpp"
#include "monitor/monitor_protocol.hpp"

namespace torch::comms::common {

// What this rank has called in one communicator, for the other ranks to compare: all that is under
// way, and the last few that ended. Its own, since the event ring is shared by all communicators of
// the process and forgets those that it has no room for.
class CollectiveLog final : public monitor::CollectiveLogReader, public OperationObserver {
 public:
  // Of a communicator of `size` ranks.
  explicit CollectiveLog(int size);

  void on_begin(const base::OpRecord& op) noexcept override;
  void on_end(const base::OpRecord& op) noexcept override;
  // The same of calls on windows, which are no operations of the communicator. Any thread.
  void on_window_begin(const monitor::NonCollectiveCall& aside) noexcept;
  void on_window_end() noexcept;

  uint64_t first_incomplete() const override;
  monitor::RankStatus status_of(uint64_t number) const override;

 private:
  // Collectives that are known; of those under way up to kMaxEntries.
  static constexpr size_t kMinEntries = 128, kMaxEntries = 65'536;

  struct LoggedCollective {
    base::OpRecord op = {};  // its `order` is 0 in a slot that nothing has used
    bool is_open = false;
  };
  // What runs beside the collectives.
  struct NonCollectiveCounters {
    monitor::NonCollectiveCall last_call = {};
    uint64_t started = 0, finished = 0;
    uint64_t last_order = 0;  // of the last one among all
  };

  LoggedCollective& slot(uint64_t number) { return calls_[number % calls_.size()]; }
  const LoggedCollective& slot(uint64_t number) const { return calls_[number % calls_.size()]; }
  bool is_open(uint64_t number) const {
    return slot(number).op.matching_sequence == number && slot(number).is_open;
  }
  void grow_if_full(uint64_t number) noexcept;
  void advance_first_open() noexcept;
  void count_started(NonCollectiveCounters& asides,
                     const monitor::NonCollectiveCall& aside) noexcept;
  monitor::Fingerprint fingerprint_at(uint64_t number) const;

  const int size_;
  mutable std::mutex mutex_;  // guards all below
  std::vector<LoggedCollective>
      calls_;                 // each at its number, so that a newer one takes the place of an older
  uint64_t last_called_ = 0;  // the largest number
  uint64_t first_open_ = 1;   // called_ + 1: none is
  NonCollectiveCounters p2p_calls_ = {}, window_calls_ = {};
  uint64_t order_ = 0;
};

}  // namespace torch::comms::common
