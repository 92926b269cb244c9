#include "schedule/catalogue.hpp"
#include "schedule/patterns/fold.hpp"

// all_gather in a logarithmic number of rounds, each of which doubles the blocks that a rank has.
// All blocks are received in their final place. Blocks may differ in size.
namespace torch::comms::schedule {
namespace {

Range input(const Problem& p) { return {Buffer::kInput, 0, p.input_count()}; }

// Bruck: in round k a rank has the 2^k blocks from its own on, around the ring of ranks. It sends
// them to the rank 2^k before it, and receives the blocks that follow from the rank 2^k after it.
int bruck_blocks(int size, int round) { return std::min(1 << round, size - (1 << round)); }

void bruck_step(const Problem& p, int64_t t, Step& out) {
  const int distance = 1 << t, n = bruck_blocks(p.size, static_cast<int>(t));
  const int target = p.ring_neighbor(-distance), source = p.ring_neighbor(distance);
  if (t == 0) {
    out.send(target, input(p));
    out.copy(input(p), p.blocks.in(Buffer::kOutput, p.rank));
  } else {
    for (const Range& range : p.blocks.around(Buffer::kOutput, p.rank, n)) out.send(target, range);
  }
  for (const Range& range : p.blocks.around(Buffer::kOutput, source, n)) out.receive(source, range);
}

Cost bruck_cost(const Problem& p) {
  Cost cost{.messages = ceil_log2(p.size), .received = p.count() - p.blocks.smallest()};
  for (int rank = 0; rank < (p.blocks.equal() ? 1 : p.size); ++rank) {
    int64_t sent = 0;
    for (int k = 0; k < ceil_log2(p.size); ++k)
      sent += p.blocks.count_around(rank, bruck_blocks(p.size, k));
    cost.sent = std::max(cost.sent, sent);
  }
  return cost;
}

// The blocks that a core rank has before a round: those of a group of 2^round neighbors in the
// core, and of the ranks paired with them.
Range group(const Problem& p, const Fold& fold, int index, int round) {
  const int first = index >> round << round;
  return p.blocks.in(Buffer::kOutput, fold.rank(first), fold.rank(first + (1 << round)));
}

// Before the core rounds, the even rank of a pair gets its partner's block; after them, the partner
// gets all blocks but its own.
void doubling_outer_step(const Problem& p, const Fold& fold, bool before, Step& out) {
  if (!fold.is_paired(p.rank)) return;
  const int odd = p.rank | 1;
  const Range lower = p.blocks.in(Buffer::kOutput, 0, odd);
  const Range upper = p.blocks.in(Buffer::kOutput, odd + 1, p.size);
  if (p.rank != odd && before) out.receive(odd, p.blocks.in(Buffer::kOutput, odd));
  if (p.rank == odd && before) out.send(odd - 1, input(p));
  if (before) return;
  for (const Range& range : {lower, upper}) {
    if (p.rank == odd)
      out.receive(odd - 1, range);
    else
      out.send(odd, range);
  }
}

void doubling_step(const Problem& p, int64_t t, Step& out) {
  const Fold fold(p.size);
  if (t == 0) out.copy(input(p), p.blocks.in(Buffer::kOutput, p.rank));
  const int64_t round = fold.extra() > 0 ? t - 1 : t;
  if (round < 0 || round == fold.rounds()) return doubling_outer_step(p, fold, round < 0, out);
  if (!fold.is_in_core(p.rank)) return;
  const int k = static_cast<int>(round), index = fold.index(p.rank), other = index ^ (1 << k);
  out.send(fold.rank(other), t == 0 ? input(p) : group(p, fold, index, k));
  out.receive(fold.rank(other), group(p, fold, other, k));
}

Cost doubling_cost(const Problem& p) {
  const Fold fold(p.size);
  const bool folded = fold.extra() > 0;
  Cost cost{.messages = fold.rounds() + (folded ? 1 : 0),
            .received = p.count() - p.blocks.smallest()};
  for (int index = 0; index < (p.blocks.equal() ? 1 : fold.core()); ++index) {
    int64_t sent = 0;
    for (int k = 0; k < fold.rounds(); ++k) sent += group(p, fold, index, k).count;
    if (index < fold.extra()) sent += p.count() - p.blocks.count(fold.rank(index) + 1);
    cost.sent = std::max(cost.sent, sent);
  }
  return cost;
}

}  // namespace

constinit const Algorithm kAllGatherBruck{
    .operation = Operation::kAllGather,
    .name = "bruck",
    .summary = "doubles what a rank has in each round, for any number of ranks; small blocks",
    .source =
        "Bruck, Ho, Kipnis, Upfal & Weathersby, IEEE Trans. Parallel Distrib. Syst. 8(11), 1997",
    .is_rotation_invariant = true,
    .functions = {.steps = [](const Problem& p) { return int64_t{ceil_log2(p.size)}; },
                  .step = bruck_step,
                  .cost = bruck_cost}};

constinit const Algorithm kAllGatherDoubling{
    .operation = Operation::kAllGather,
    .name = "doubling",
    .summary =
        "recursive doubling, nearest ranks first; pairs when the number of ranks is no power of "
        "two, at the price of one more vector",
    .source = "Thakur, Rabenseifner & Gropp 2005",
    .functions = {.steps =
                      [](const Problem& p) {
                        const Fold fold(p.size);
                        return fold.steps(fold.rounds());
                      },
                  .step = doubling_step,
                  .cost = doubling_cost}};

}  // namespace torch::comms::schedule
