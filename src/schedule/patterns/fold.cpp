#include "schedule/patterns/fold.hpp"

namespace torch::comms::schedule {

void fold_sums(const Fold& fold, int rank, int64_t count, Step& out) {
  if (!fold.is_paired(rank)) return;
  const Range input{Buffer::kInput, 0, count}, output{Buffer::kOutput, 0, count};
  if (fold.is_in_core(rank))
    out.receive_reduce(rank + 1, input, output, LeftOperand::kOwn);
  else
    out.send(rank - 1, input);
}

void unfold_result(const Fold& fold, int rank, int64_t count, Step& out) {
  if (!fold.is_paired(rank)) return;
  const Range output{Buffer::kOutput, 0, count};
  if (fold.is_in_core(rank))
    out.send(rank + 1, output);
  else
    out.receive(rank - 1, output);
}

}  // namespace torch::comms::schedule
