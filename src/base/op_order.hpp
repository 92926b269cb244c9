#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>

// Numbers that agree on all ranks which take part in an operation, without talking: the same calls
// in the same order count alike.
namespace torch::comms::base {

// Readers pair operations by their number alone, so collectives, splits, batches and messages count
// in ranges of their own. Splits are among the collectives on backends on which all ranks call
// them; on others, as batches, some ranks alone may count them.
inline constexpr uint64_t kFirstSplitSequence = uint64_t{1} << 58;
inline constexpr uint64_t kFirstBatchSequence = uint64_t{1} << 59;
inline constexpr uint64_t kFirstMessageSequence = uint64_t{1} << 60;

// Of the count of messages between two ranks; it wraps.
inline constexpr int kMessageCountBits = 20;
inline constexpr uint64_t kMessageCountMask = (uint64_t{1} << kMessageCountBits) - 1;

inline bool is_collective_sequence(uint64_t number) noexcept {
  return number != 0 && number < kFirstSplitSequence;
}

// As errors show it: "operation 7", of a split or batch "call 1", "message 3" of its two ranks.
inline std::string format_sequence(uint64_t number) {
  if (number < kFirstSplitSequence) return "operation " + std::to_string(number);
  if (number < kFirstMessageSequence) return "call " + std::to_string(number % kFirstSplitSequence);
  return "message " + std::to_string(((number - kFirstMessageSequence) & kMessageCountMask) + 1);
}

// The counters of one communicator. One thread at a time.
class OpOrder {
 public:
  uint64_t next_collective() noexcept { return ++collectives_; }
  uint64_t next_split() noexcept { return kFirstSplitSequence + ++splits_; }
  uint64_t next_batch() noexcept { return kFirstBatchSequence + ++batches_; }
  // Of a message from `src`, negative: from any rank, to `dst`, ranks of a communicator of `size`.
  uint64_t next_message(int src, int dst, int size) {
    const auto ranks = static_cast<uint64_t>(std::max(size, 1));
    const uint64_t pair =
        (src < 0 ? ranks : static_cast<uint64_t>(src)) * ranks + static_cast<uint64_t>(dst);
    const uint64_t count = messages_[pair]++ & kMessageCountMask;
    return kFirstMessageSequence + (pair << kMessageCountBits) + count;
  }

  // The operation that got `number`, none of a collective, is not issued after all: the next one
  // gets it, unless others came between.
  void cancel(uint64_t number) {
    if (number < kFirstMessageSequence) {
      if (number == kFirstBatchSequence + batches_) --batches_;
      if (number == kFirstSplitSequence + splits_) --splits_;
      return;
    }
    const auto row = messages_.find((number - kFirstMessageSequence) >> kMessageCountBits);
    if (row != messages_.end() && ((row->second - 1 - number) & kMessageCountMask) == 0)
      --row->second;
  }

 private:
  uint64_t collectives_ = 0, splits_ = 0, batches_ = 0;
  std::unordered_map<uint64_t, uint64_t> messages_;  // by pair
};

}  // namespace torch::comms::base
