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
inline constexpr uint64_t kFirstSplit = uint64_t{1} << 58;
inline constexpr uint64_t kFirstBatch = uint64_t{1} << 59;
inline constexpr uint64_t kFirstMessage = uint64_t{1} << 60;

// Of the count of messages between two ranks; it wraps.
inline constexpr int kCountBits = 20;
inline constexpr uint64_t kCounts = (uint64_t{1} << kCountBits) - 1;

inline bool is_of_collective(uint64_t number) noexcept {
  return number != 0 && number < kFirstSplit;
}

// As errors show it: "operation 7", of a split or batch "call 1", "message 3" of its two ranks.
inline std::string words_of_number(uint64_t number) {
  if (number < kFirstSplit) return "operation " + std::to_string(number);
  if (number < kFirstMessage) return "call " + std::to_string(number % kFirstSplit);
  return "message " + std::to_string(((number - kFirstMessage) & kCounts) + 1);
}

// The counters of one communicator. One thread at a time.
class OpOrder {
 public:
  uint64_t collective() noexcept { return ++collectives_; }
  uint64_t split() noexcept { return kFirstSplit + ++splits_; }
  uint64_t batch() noexcept { return kFirstBatch + ++batches_; }
  // Of a message from `src`, negative: from any rank, to `dst`, ranks of a communicator of `size`.
  uint64_t message(int src, int dst, int size) {
    const auto ranks = static_cast<uint64_t>(std::max(size, 1));
    const uint64_t pair =
        (src < 0 ? ranks : static_cast<uint64_t>(src)) * ranks + static_cast<uint64_t>(dst);
    const uint64_t count = messages_[pair]++ & kCounts;
    return kFirstMessage + (pair << kCountBits) + count;
  }

  // The operation that got `number`, none of a collective, is not issued after all: the next one
  // gets it, unless others came between.
  void take_back(uint64_t number) {
    if (number < kFirstMessage) {
      if (number == kFirstBatch + batches_) --batches_;
      if (number == kFirstSplit + splits_) --splits_;
      return;
    }
    const auto row = messages_.find((number - kFirstMessage) >> kCountBits);
    if (row != messages_.end() && ((row->second - 1 - number) & kCounts) == 0) --row->second;
  }

 private:
  uint64_t collectives_ = 0, splits_ = 0, batches_ = 0;
  std::unordered_map<uint64_t, uint64_t> messages_;  // by pair
};

}  // namespace torch::comms::base
