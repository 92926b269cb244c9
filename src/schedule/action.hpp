#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

// What one rank does in one step of an algorithm. All numbers are elements, never bytes, so that no
// cut splits an element.
namespace torch::comms::schedule {

// A rank's memory. Contiguous as seen from here; where the caller's is not (a list of tensors),
// whoever executes a step resolves a range to its pieces.
enum class Buffer : uint8_t { kInput, kOutput, kScratch };

struct Range {
  Buffer buffer = Buffer::kInput;
  int64_t begin = 0;
  int64_t count = 0;

  friend bool operator==(const Range&, const Range&) = default;
};

enum class ActionKind : uint8_t {
  kSend,           // `from` goes to `peer`
  kReceive,        // `into` comes from `peer`
  kReceiveReduce,  // into = from + what comes from `peer`; `first` says which is the left operand
  kSignal,         // an empty message goes to `peer`
  kWait,           // an empty message comes from `peer`
  kCopy,           // into = from
  kReduce,         // into = from + other
};

// The left operand of a reduction. Which one it is decides nothing but the bits of NaN for the
// usual operations, and everything for operations that do not commute.
enum class LeftOperand : uint8_t { kOwn, kIncoming };

struct Action {
  ActionKind kind = ActionKind::kSend;
  LeftOperand left_operand = LeftOperand::kOwn;
  int peer = -1;
  Range from = {}, other = {}, into = {};  // as the verb says; those in use have the same count
};

// One step of one rank: `transfers` first, all of them at once and in any order; when they are
// done, `local` in the order of the list. Then the next step may begin.
//
// - A transfer is done when its memory may be used again: a send need not have arrived.
// - No transfer of a step touches what another one of the step writes.
// - Messages meet in the same step: what rank a sends rank b in step t, b receives in its step t.
// - All that one rank sends another in one step is one message: the elements of its sends to it, in
//   the order of the list. The receiving actions take it apart in the order of their list, with
//   cuts of their own; only the totals agree. So data in pieces is one message, not many.
// - An operand of a reduction or the source of a copy is the target itself, or disjoint from it.
//
// A peer's step is a pure function, too. So a rank on a one-sided link finds where its message
// lands by asking for the peer's step, and a send becomes puts (or a receive gets) without an
// exchange of offsets: see schedule/patterns/contiguous_transfer.hpp.
class Step {
 public:
  // Keeps its memory: one Step object serves a whole schedule without allocating.
  void clear() noexcept;

  std::span<const Action> transfers() const noexcept { return transfers_; }
  std::span<const Action> local() const noexcept { return local_; }

  // Empty ranges and copies of a range onto itself are left out; signal() and poll_once() are not.
  void send(int peer, Range from);
  void receive(int peer, Range into);
  void receive_reduce(int peer, Range from, Range into, LeftOperand first);
  void signal(int peer);
  void wait(int peer);
  void copy(Range from, Range into);
  void reduce(Range from, Range other, Range into);

  // An algorithm inside another one: its rank i is rank `first + i * stride` here, and element 0 of
  // each of its buffers is `at[buffer].begin` of `at[buffer].buffer` here.
  struct SubgroupMapping {
    int first = 0;
    int stride = 1;
    std::array<Range, 3> at = {Range{Buffer::kInput}, Range{Buffer::kOutput},
                               Range{Buffer::kScratch}};
  };
  // Holds for the actions that follow, until it is set again.
  void set_mapping(const SubgroupMapping& frame) noexcept { mapping_ = frame; }

 private:
  int map_peer(int peer) const noexcept { return mapping_.first + peer * mapping_.stride; }
  Range map_range(Range range) const noexcept;

  SubgroupMapping mapping_;
  std::vector<Action> transfers_, local_;
};

}  // namespace torch::comms::schedule
