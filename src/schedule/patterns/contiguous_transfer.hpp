#pragma once

#include <vector>

#include "schedule/action.hpp"

namespace torch::comms::schedule {

// A part of a message that is one range on either side: what a one-sided link moves at once.
struct ContiguousTransfer {
  Range from;                              // of the sender
  Range into;                              // of the receiver
  ActionKind kind = ActionKind::kReceive;  // or kReceiveReduce: what becomes of it there, with
  LeftOperand left_operand = LeftOperand::kOwn;  // and
  Range own = {};                                // of the receiver, as in Action
};

// Appends what rank `from` sends rank `to` in a step, in order: `sent` is that step of `from`,
// `received` the same step of `to`. Signals have no pieces. O(actions of both).
void append_contiguous_transfers(int from, const Step& sent, int to, const Step& received,
                                 std::vector<ContiguousTransfer>& pieces);

}  // namespace torch::comms::schedule
