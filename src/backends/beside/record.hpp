#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "base/op_record.hpp"
#include "core/operation_observer.hpp"
#include "side/monitor_protocol.hpp"

namespace torch::comms::beside {

// What this rank has called in one communicator, for the other ranks to compare: all that is under
// way, and the last few that ended. Its own, since the event ring is shared by all communicators of
// the process and forgets those that it has no room for.
class Record final : public monitor::CollectiveLogReader, public OperationObserver {
 public:
  // Of a communicator of `size` ranks.
  explicit Record(int size);

  void on_begin(const base::OpRecord& op) noexcept override;
  void on_end(const base::OpRecord& op) noexcept override;
  // The same of calls on windows, which are no operations of the communicator. Any thread.
  void begins_on_window(const monitor::NonCollectiveCall& aside) noexcept;
  void ends_on_window() noexcept;

  uint64_t first_incomplete() const override;
  monitor::RankStatus status_of(uint64_t number) const override;

 private:
  // Collectives that are known; of those under way up to kMost.
  static constexpr size_t kKept = 128, kMost = 65'536;

  struct Call {
    base::OpRecord op = {};  // its `order` is 0 in a slot that nothing has used
    bool is_open = false;
  };
  // What runs beside the collectives.
  struct Asides {
    monitor::NonCollectiveCall last = {};
    uint64_t begun = 0, ended = 0;
    uint64_t turn = 0;  // of the last one among all
  };

  Call& slot(uint64_t number) { return calls_[number % calls_.size()]; }
  const Call& slot(uint64_t number) const { return calls_[number % calls_.size()]; }
  bool is_open(uint64_t number) const {
    return slot(number).op.matching_sequence == number && slot(number).is_open;
  }
  void make_room(uint64_t number) noexcept;
  void skip_ended() noexcept;
  void begin(Asides& asides, const monitor::NonCollectiveCall& aside) noexcept;
  monitor::Fingerprint print(uint64_t number) const;

  const int size_;
  mutable std::mutex mutex_;  // guards all below
  std::vector<Call> calls_;   // each at its number, so that a newer one takes the place of an older
  uint64_t called_ = 0;       // the largest number
  uint64_t first_open_ = 1;   // called_ + 1: none is
  Asides operations_ = {}, on_windows_ = {};
  uint64_t turn_ = 0;
};

}  // namespace torch::comms::beside
