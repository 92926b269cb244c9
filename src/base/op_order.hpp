#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>

// Counts operations, so that an operation has the same sequence number on all ranks that take part
// in it. This needs no communication: ranks that make the same calls in the same order count the
// same.
namespace torch::comms::base {

// Readers match operations by their number alone, so collectives, splits, batches and messages have
// separate ranges. Backends on which all ranks call split() count splits as collectives. On other
// backends some ranks need not call split() (Capabilities::counts_splits), so splits are counted
// apart.
inline constexpr uint64_t kFirstSplitSequence = uint64_t{1} << 58;
inline constexpr uint64_t kFirstBatchSequence = uint64_t{1} << 59;
inline constexpr uint64_t kFirstMessageSequence = uint64_t{1} << 60;

// The number of bits of the message counter of a pair of ranks; the counter wraps.
inline constexpr int kMessageCountBits = 20;
inline constexpr uint64_t kMessageCountMask = (uint64_t{1} << kMessageCountBits) - 1;

inline bool is_collective_sequence(uint64_t number) noexcept {
  return number != 0 && number < kFirstSplitSequence;
}

// Formats a number for errors: "operation 7"; for a split or batch "call 1"; for the third message
// from one rank to another "message 3".
inline std::string format_sequence(uint64_t number) {
  if (number < kFirstSplitSequence) return "operation " + std::to_string(number);
  if (number < kFirstMessageSequence) return "call " + std::to_string(number % kFirstSplitSequence);
  return "message " + std::to_string(((number - kFirstMessageSequence) & kMessageCountMask) + 1);
}

// The sequence counters of one communicator.
// Threads: one at a time.
class OpOrder {
 public:
  uint64_t next_collective() noexcept { return ++collectives_; }
  uint64_t next_split() noexcept { return kFirstSplitSequence + ++splits_; }
  uint64_t next_batch() noexcept { return kFirstBatchSequence + ++batches_; }
  // Numbers a message from `src` to `dst` in a communicator of `size` ranks. A negative `src` means
  // a receive from any source: it has a number that no send has.
  uint64_t next_message(int src, int dst, int size) {
    const auto ranks = static_cast<uint64_t>(std::max(size, 1));
    const uint64_t pair =
        (src < 0 ? ranks : static_cast<uint64_t>(src)) * ranks + static_cast<uint64_t>(dst);
    const uint64_t count = messages_[pair]++ & kMessageCountMask;
    return kFirstMessageSequence + (pair << kMessageCountBits) + count;
  }

 private:
  uint64_t collectives_ = 0, splits_ = 0, batches_ = 0;
  std::unordered_map<uint64_t, uint64_t> messages_;  // count by (source, destination) pair
};

}  // namespace torch::comms::base
