#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

// What one rank does in one step of an algorithm. All numbers are elements, never bytes, so that no
// range splits an element.
namespace torch::comms::schedule {

// A rank's memory. It is contiguous in a schedule. If the caller's memory is a list of tensors, the
// engine that executes a step maps a range to its pieces.
enum class Buffer : uint8_t { kInput, kOutput, kScratch };

struct Range {
  Buffer buffer = Buffer::kInput;
  int64_t begin = 0;
  int64_t count = 0;

  friend bool operator==(const Range&, const Range&) = default;
};

enum class ActionKind : uint8_t {
  kSend,     // sends `from` to `peer`
  kReceive,  // receives `into` from `peer`
  // into = from + the data of `peer`; `left_operand` says which is the left operand.
  kReceiveReduce,
  kSignal,  // sends an empty message to `peer`
  kWait,    // receives an empty message from `peer`
  kCopy,    // into = from
  kReduce,  // into = from + other
};

// The left operand of a reduction. For commutative operations it only decides the bits of NaN; for
// other operations it decides the result.
enum class LeftOperand : uint8_t { kOwn, kIncoming };

struct Action {
  ActionKind kind = ActionKind::kSend;
  LeftOperand left_operand = LeftOperand::kOwn;
  int peer = -1;
  // Used as ActionKind says; the ranges in use have equal counts.
  Range from = {}, other = {}, into = {};
};

// One step of one rank. All `transfers` run first, at once and in any order. When they are done,
// the `local` actions run in the order of the list. Then the next step may begin.
//
// - A transfer is done when its memory may be used again: a send need not have arrived.
// - No transfer of a step touches memory that another transfer of the step writes.
// - Messages match within a step: what rank a sends to rank b in step t, b receives in its step t.
// - All that one rank sends to another in one step is one message: the elements of its sends to
//   that rank, in the order of the list. The receiving actions take the message apart in the order
//   of their list, at boundaries of their own; only the totals match. So data in pieces is one
//   message, not many.
// - An operand of a reduction or the source of a copy is either the target itself or disjoint from
//   it.
//
// A peer's step is a pure function, too. So a rank on a one-sided link computes the peer's step to
// find where its message arrives. A send becomes puts (or a receive becomes gets) without an
// exchange of offsets: see schedule/patterns/contiguous_transfer.hpp.
class Step {
 public:
  // Empties the step but keeps its allocated memory: one Step object serves a whole schedule
  // without allocating.
  void clear() noexcept;

  std::span<const Action> transfers() const noexcept { return transfers_; }
  std::span<const Action> local() const noexcept { return local_; }

  // Append an action. Empty ranges and copies of a range onto itself are left out; signal() and
  // wait() never are.
  void send(int peer, Range from);
  void receive(int peer, Range into);
  void receive_reduce(int peer, Range from, Range into, LeftOperand first);
  void signal(int peer);
  void wait(int peer);
  void copy(Range from, Range into);
  void reduce(Range from, Range other, Range into);

  // Embeds an algorithm in another one. Its rank i is rank `first + i * stride` here. Element 0 of
  // each of its buffers is element `at[buffer].begin` of buffer `at[buffer].buffer` here.
  struct SubgroupMapping {
    int first = 0;
    int stride = 1;
    std::array<Range, 3> at = {Range{Buffer::kInput}, Range{Buffer::kOutput},
                               Range{Buffer::kScratch}};
  };
  // Applies to all following actions, until it is set again.
  void set_mapping(const SubgroupMapping& frame) noexcept { mapping_ = frame; }

 private:
  int map_peer(int peer) const noexcept { return mapping_.first + peer * mapping_.stride; }
  Range map_range(Range range) const noexcept;

  SubgroupMapping mapping_;
  std::vector<Action> transfers_, local_;
};

}  // namespace torch::comms::schedule
