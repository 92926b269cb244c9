#pragma once

#include <vector>

#include "schedule/action.hpp"

namespace torch::comms::schedule {

// A part of a message that is one range at the sender and one at the receiver: what a one-sided
// link moves at once.
struct ContiguousTransfer {
  Range from;  // of the sender
  Range into;  // of the receiver
  // What the receiver does: kReceive, or kReceiveReduce with the next two fields as in Action.
  ActionKind kind = ActionKind::kReceive;
  LeftOperand left_operand = LeftOperand::kOwn;
  Range own = {};  // of the receiver
};

// Appends the parts of the message from rank `from` to rank `to` in a step, in order. `sent` is
// that step of `from`, `received` the same step of `to`. Signals have no parts. The time is
// O(actions of both steps).
void append_contiguous_transfers(int from, const Step& sent, int to, const Step& received,
                                 std::vector<ContiguousTransfer>& pieces);

}  // namespace torch::comms::schedule
