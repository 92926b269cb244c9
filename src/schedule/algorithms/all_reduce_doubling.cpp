#include "schedule/catalogue.hpp"
#include "schedule/patterns/fold.hpp"

// all_reduce in log2(size) rounds over hypercube neighbors: of whole vectors (recursive doubling),
// or by halving and doubling (Rabenseifner). Distances grow, so the largest halves go to the
// nearest ranks. Any number of ranks works: see Fold. Lower ranks are always the left operand.
namespace torch::comms::schedule {
namespace {

int partner(const Fold& fold, int rank, int round) {
  return fold.rank(fold.index(rank) ^ (1 << round));
}
bool is_lower(const Fold& fold, int rank, int round) {
  return (fold.index(rank) >> round & 1) == 0;
}

// The buffer with a rank's sum before this round: its own input, or the output once that holds a
// sum.
Buffer sum_before(const Fold& fold, int rank, int round) {
  return round == 0 && !fold.is_paired(rank) ? Buffer::kInput : Buffer::kOutput;
}

int64_t doubling_steps(const Problem& p) {
  const Fold fold(p.size);
  return fold.steps(fold.rounds());
}

void doubling_step(const Problem& p, int64_t t, Step& out) {
  const Fold fold(p.size);
  if (fold.extra() > 0 && t-- == 0) return fold_sums(fold, p.rank, p.count(), out);
  if (t == fold.rounds()) return unfold_result(fold, p.rank, p.count(), out);
  if (!fold.is_in_core(p.rank)) return;
  const int round = static_cast<int>(t), peer = partner(fold, p.rank, round);
  const Range mine{sum_before(fold, p.rank, round), 0, p.count()};
  const Range theirs{Buffer::kScratch, 0, p.count()}, sum{Buffer::kOutput, 0, p.count()};
  out.send(peer, mine);
  out.receive(peer, theirs);
  if (is_lower(fold, p.rank, round))
    out.reduce(mine, theirs, sum);
  else
    out.reduce(theirs, mine, sum);
}

Cost doubling_cost(const Problem& p) {
  const Fold fold(p.size);
  const int64_t exchanges = fold.rounds() + (fold.extra() > 0 ? 1 : 0),
                moved = exchanges * p.count();
  return {.messages = exchanges,
          .sent = moved,
          .received = moved,
          .reduced = moved,
          .scratch = p.count()};
}

// The blocks [begin, begin + count), of fold.core() ones, that a core rank still reduces after
// `rounds` rounds. In each round the lower of two ranks keeps the lower half.
struct CoreBlockInterval {
  int begin = 0, count = 0;
};
CoreBlockInterval kept(const Fold& fold, int rank, int rounds) {
  CoreBlockInterval interval{0, fold.core()};
  for (int k = 0; k < rounds; ++k) {
    interval.count /= 2;
    if (!is_lower(fold, rank, k)) interval.begin += interval.count;
  }
  return interval;
}

int64_t halving_steps(const Problem& p) {
  const Fold fold(p.size);
  return fold.steps(int64_t{2} * fold.rounds());
}

void halving_step(const Problem& p, int64_t t, Step& out) {
  const Fold fold(p.size);
  if (fold.extra() > 0 && t-- == 0) return fold_sums(fold, p.rank, p.count(), out);
  if (t == int64_t{2} * fold.rounds()) return unfold_result(fold, p.rank, p.count(), out);
  if (!fold.is_in_core(p.rank)) return;
  const bool adding = t < fold.rounds();
  const int round = static_cast<int>(adding ? t : 2 * fold.rounds() - 1 - t);
  const int peer = partner(fold, p.rank, round);
  const bool lower = is_lower(fold, p.rank, round);
  const CoreBlockInterval mine = kept(fold, p.rank, round + 1);
  const int theirs = lower ? mine.begin + mine.count : mine.begin - mine.count;
  const Blocks blocks = Blocks::even(p.count(), fold.core());
  const auto half = [&](Buffer buffer, int begin) {
    return blocks.in(buffer, begin, begin + mine.count);
  };
  if (adding) {
    const Buffer from = sum_before(fold, p.rank, round);
    out.send(peer, half(from, theirs));
    out.receive_reduce(peer, half(from, mine.begin), half(Buffer::kOutput, mine.begin),
                       lower ? LeftOperand::kOwn : LeftOperand::kIncoming);
  } else {
    out.send(peer, half(Buffer::kOutput, mine.begin));
    out.receive(peer, half(Buffer::kOutput, theirs));
  }
}

Cost halving_cost(const Problem& p) {
  const Fold fold(p.size);
  const Blocks blocks = Blocks::even(p.count(), fold.core());
  // Rank 0 has the highest cost: it is in a pair if there are pairs, and keeps the first blocks,
  // which are the larger ones.
  Cost cost{.messages = 2 * int64_t{fold.rounds()}, .sent = p.count()};
  for (int half = 1; half < fold.core(); half *= 2) {
    cost.reduced += blocks.count(0, half);
    if (half > 1) cost.sent += blocks.count(0, half);
  }
  if (fold.extra() > 0) {
    cost.messages += 1;
    cost.sent += p.count();
    cost.reduced += p.count();
  }
  cost.received = cost.sent;
  return cost;
}

}  // namespace

constinit const Algorithm kAllReduceDoubling{
    .operation = Operation::kAllReduce,
    .name = "doubling",
    .summary =
        "recursive doubling of whole vectors: fewest hops without a message to every rank; small "
        "vectors",
    .source = "Thakur, Rabenseifner & Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005",
    .reduction_order = ReductionOrder::kFixed,
    .order_text = "neighbors first, then neighboring pairs, and so on, lower ranks left",
    .functions = {.steps = doubling_steps,
                  .step = doubling_step,
                  .cost = doubling_cost,
                  .scratch = [](const Problem& p) {
                    return Fold(p.size).is_in_core(p.rank) ? p.count() : 0;
                  }}};

constinit const Algorithm kAllReduceHalving{
    .operation = Operation::kAllReduce,
    .name = "halving",
    .summary =
        "halving reduce_scatter, doubling all_gather: as little data as ring in log steps when "
        "the number of ranks is a power of two, up to twice as much when not",
    .source = "Rabenseifner, ICCS 2004; Thakur, Rabenseifner & Gropp 2005",
    .reduction_order = ReductionOrder::kFixed,
    .order_text = "neighbors first, then neighboring pairs, and so on, lower ranks left",
    .functions = {.steps = halving_steps, .step = halving_step, .cost = halving_cost}};

}  // namespace torch::comms::schedule
