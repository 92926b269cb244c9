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

// Records the collectives that this rank has called in one communicator, which the monitor compares
// with the peers' calls. It holds all collectives in flight, and at least the last 128. Each
// communicator has a log of its own, because all communicators of a process share the event ring,
// and its oldest entries are overwritten.
//
// Threads: any.
class CollectiveLog final : public monitor::CollectiveLogReader, public OperationObserver {
 public:
  // `size`: ranks of the communicator.
  explicit CollectiveLog(int size);

  uint64_t on_begin(const base::OpRecord& op, const Operation& operation) noexcept override;
  void on_end(uint64_t token, const base::OpRecord& op, bool ok) noexcept override;
  // Record the begin and the end of a call on a window. Such calls are not collectives of the
  // communicator.
  // Threads: any.
  void on_window_begin(const monitor::NonCollectiveCall& call) noexcept;
  void on_window_end() noexcept;

  uint64_t first_incomplete() const override;
  monitor::RankStatus status_of(uint64_t number) const override;

 private:
  // Capacity in collectives. The log grows up to kMaxEntries while calls in flight fill it.
  static constexpr size_t kMinEntries = 128, kMaxEntries = 65'536;

  struct LoggedCollective {
    base::OpRecord op = {};  // `matching_sequence` is 0 in an entry that was never used
    bool is_open = false;
  };
  // Counts calls that are no collectives.
  struct NonCollectiveCounters {
    monitor::NonCollectiveCall last_call = {};
    uint64_t started = 0, finished = 0;
    uint64_t last_order = 0;  // position of the last call among all that are no collectives
  };

  LoggedCollective& slot(uint64_t number) { return calls_[number % calls_.size()]; }
  const LoggedCollective& slot(uint64_t number) const { return calls_[number % calls_.size()]; }
  bool is_open(uint64_t number) const {
    return slot(number).op.matching_sequence == number && slot(number).is_open;
  }
  void grow_if_full(uint64_t number) noexcept;
  void advance_first_open() noexcept;
  void count_started(NonCollectiveCounters& counters,
                     const monitor::NonCollectiveCall& call) noexcept;
  monitor::Fingerprint fingerprint_at(uint64_t number) const;

  const int size_;
  mutable std::mutex mutex_;  // guards all members below
  std::vector<LoggedCollective>
      calls_;  // entry of collective n: n % size(); a newer collective replaces an older one
  uint64_t last_called_ = 0;  // the largest number so far
  uint64_t first_open_ = 1;   // last_called_ + 1: none is open
  NonCollectiveCounters p2p_calls_ = {}, window_calls_ = {};
  uint64_t order_ = 0;
};

}  // namespace torch::comms::common
