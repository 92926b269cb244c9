#include "schedule/catalogue.hpp"
#include "schedule/patterns/fold.hpp"

// reduce_scatter by recursive halving. In each round a rank sends half of its current blocks to a
// rank of the other half. The farthest ranks come first, so that a rank ends with its own block.
// Pairs (see Fold) reduce the blocks of both ranks. The input is not changed: sums are in scratch.
namespace torch::comms::schedule {
namespace {

// Core indices [begin, begin + count): the blocks that a core rank still reduces before a round.
struct CoreIndexInterval {
  int begin = 0, count = 0;
};
CoreIndexInterval before(const Fold& fold, int index, int round) {
  const int bits = fold.rounds() - round;
  return {index >> bits << bits, 1 << bits};
}

Range blocks_of(const Problem& p, const Fold& fold, CoreIndexInterval interval, Buffer buffer) {
  return p.blocks.in(buffer, fold.rank(interval.begin), fold.rank(interval.begin + interval.count));
}

// Returns the part of the whole vector that is kept in scratch. The even rank of a pair keeps all.
// Other core ranks keep what the first round leaves, or nothing if that is the result.
Range kept(const Problem& p, const Fold& fold) {
  if (!fold.is_in_core(p.rank)) return {};
  const int index = fold.index(p.rank);
  if (fold.is_paired(p.rank)) return {Buffer::kScratch, 0, p.count()};
  if (fold.rounds() == 1) return {};
  return blocks_of(p, fold, before(fold, index, 1), Buffer::kScratch);
}

Range in_scratch(const Problem& p, const Fold& fold, Range range) {
  return {Buffer::kScratch, range.begin - kept(p, fold).begin, range.count};
}

void outer_step(const Problem& p, const Fold& fold, bool first, Step& out) {
  if (!fold.is_paired(p.rank)) return;
  const Range all{Buffer::kInput, 0, p.count()}, result{Buffer::kOutput, 0, p.output_count()};
  if (p.rank % 2 != 0) {
    if (first)
      out.send(p.rank - 1, all);
    else
      out.receive(p.rank - 1, result);
  } else if (first) {
    out.receive_reduce(p.rank + 1, all, {Buffer::kScratch, 0, p.count()}, LeftOperand::kOwn);
  } else {
    out.send(p.rank + 1, p.blocks.in(Buffer::kScratch, p.rank + 1));
    out.copy(p.blocks.in(Buffer::kScratch, p.rank), result);
  }
}

void step(const Problem& p, int64_t t, Step& out) {
  const Fold fold(p.size);
  if (fold.extra() > 0 && t-- == 0) return outer_step(p, fold, true, out);
  if (t == fold.rounds()) return outer_step(p, fold, false, out);
  if (!fold.is_in_core(p.rank)) return;
  const int round = static_cast<int>(t), index = fold.index(p.rank);
  const int bit = fold.core() >> (round + 1), other = index ^ bit;
  const bool lower = (index & bit) == 0;
  const auto sum = [&](CoreIndexInterval interval) {
    const Range range = blocks_of(p, fold, interval, Buffer::kInput);
    return round == 0 && !fold.is_paired(p.rank) ? range : in_scratch(p, fold, range);
  };
  const CoreIndexInterval mine = before(fold, index, round + 1),
                          theirs = before(fold, other, round + 1);
  const bool result = round + 1 == fold.rounds() && !fold.is_paired(p.rank);
  out.send(fold.rank(other), sum(theirs));
  out.receive_reduce(fold.rank(other), sum(mine),
                     result ? Range{Buffer::kOutput, 0, p.output_count()}
                            : in_scratch(p, fold, blocks_of(p, fold, mine, Buffer::kInput)),
                     lower ? LeftOperand::kOwn : LeftOperand::kIncoming);
}

Cost cost(const Problem& p) {
  const Fold fold(p.size);
  const bool folded = fold.extra() > 0;
  Cost cost{.messages = fold.rounds() + (folded ? 1 : 0),
            .sent = folded ? p.count() : p.count() - p.blocks.smallest()};
  // Rank 0 has the highest cost when all blocks are equal.
  for (int index = 0; index < (p.blocks.equal() ? 1 : fold.core()); ++index) {
    const int rank = fold.rank(index);
    int64_t reduced = fold.is_paired(rank) ? p.count() : 0;
    for (int k = 1; k <= fold.rounds(); ++k)
      reduced += blocks_of(p, fold, before(fold, index, k), Buffer::kInput).count;
    cost.reduced = std::max(cost.reduced, reduced);
    cost.scratch = std::max(cost.scratch, kept(p.for_rank(rank), fold).count);
  }
  cost.received = cost.reduced;
  return cost;
}

}  // namespace

constinit const Algorithm kReduceScatterHalving{
    .operation = Operation::kReduceScatter,
    .name = "halving",
    .summary =
        "recursive halving in log steps; a number of ranks that is no power of two costs up to "
        "twice the data",
    .source = "Thakur, Rabenseifner & Gropp 2005",
    .reduction_order = ReductionOrder::kFixed,
    .order_text =
        "pairs first, then ranks half of them apart, then a quarter, and so on, lower ranks left",
    .functions = {.steps =
                      [](const Problem& p) {
                        const Fold fold(p.size);
                        return fold.steps(fold.rounds());
                      },
                  .step = step,
                  .cost = cost,
                  .scratch = [](const Problem& p) { return kept(p, Fold(p.size)).count; }}};

}  // namespace torch::comms::schedule
