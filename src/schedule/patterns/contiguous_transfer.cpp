#include "schedule/patterns/contiguous_transfer.hpp"

#include <algorithm>

namespace torch::comms::schedule {
namespace {

Range part(const Range& range, int64_t first, int64_t count) {
  return {range.buffer, range.begin + first, count};
}

}  // namespace

void append_contiguous_transfers(int from, const Step& sent, int to, const Step& received,
                                 std::vector<ContiguousTransfer>& pieces) {
  const auto receives = [&](const Action& action) {
    return action.peer == from &&
           (action.kind == ActionKind::kReceive || action.kind == ActionKind::kReceiveReduce);
  };
  const auto end = received.transfers().end();
  auto target = std::find_if(received.transfers().begin(), end, receives);
  int64_t filled = 0;  // elements of the target that are filled
  for (const Action& send : sent.transfers()) {
    if (send.kind != ActionKind::kSend || send.peer != to) continue;
    for (int64_t taken = 0; taken < send.from.count && target != end;) {
      const int64_t count = std::min(send.from.count - taken, target->into.count - filled);
      pieces.push_back({.from = part(send.from, taken, count),
                        .into = part(target->into, filled, count),
                        .kind = target->kind,
                        .left_operand = target->left_operand,
                        .own = part(target->from, filled, count)});
      taken += count;
      filled += count;
      if (filled < target->into.count) continue;
      target = std::find_if(target + 1, end, receives);
      filled = 0;
    }
  }
}

}  // namespace torch::comms::schedule
