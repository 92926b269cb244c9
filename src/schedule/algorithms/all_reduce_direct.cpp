#include "schedule/catalogue.hpp"
#include "schedule/patterns/direct.hpp"

// all_reduce over a switch or shared memory, where every rank reaches every other in one hop.
// Chunks bound the scratch, which otherwise grows with the vector.
namespace torch::comms::schedule {
namespace {

Chunks chunks_of_vector(const Problem& p) { return {p.count(), p.options.chunk}; }
Chunks chunks_of_block(const Problem& p) { return {p.blocks.largest(), p.options.chunk}; }

void one_shot_step(const Problem& p, int64_t t, Step& out) {
  const Chunks chunks = chunks_of_vector(p);
  const Range mine = chunks.in(Buffer::kInput, t);
  exchange_with_all(
      p.rank, p.size, [&](int) { return mine; },
      [&](int peer) { return contribution_range(p.rank, peer, mine.count); }, out);
  reduce_in_rank_order(p.rank, p.size, mine, chunks.in(Buffer::kOutput, t), out);
}

int64_t one_shot_scratch(const Problem& p) {
  return (p.size - 1) * chunks_of_vector(p).in(Buffer::kInput, 0).count;
}

Cost one_shot_cost(const Problem& p) {
  const int64_t peers = p.size - 1, all = peers * p.count();
  return {.messages = peers * chunks_of_vector(p).count(),
          .sent = all,
          .received = all,
          .reduced = all,
          .scratch = one_shot_scratch(p)};
}

// While a chunk is reduced, the chunk before is sent to all ranks.
void two_shot_step(const Problem& p, int64_t t, Step& out) {
  const Range block = p.blocks.in(Buffer::kOutput, p.rank);
  const Chunks chunks = chunks_of_block(p);
  direct_reduce_scatter(p.rank, p.blocks, chunks, t, chunks.of(block, t), out);
  direct_all_gather(p.rank, p.blocks, chunks, t - 1, chunks.of(block, t - 1), out);
}

int64_t two_shot_scratch(const Problem& p) {
  return (p.size - 1) * chunks_of_block(p).of(p.blocks.in(Buffer::kInput, p.rank), 0).count;
}

Cost two_shot_cost(const Problem& p) {
  const int64_t peers = p.size - 1, largest = p.blocks.largest();
  const int64_t moved = p.count() + (peers - 1) * largest;
  return {.messages = peers * (chunks_of_block(p).count() + 1),
          .sent = moved,
          .received = moved,
          .reduced = peers * largest,
          .scratch = peers * chunks_of_block(p).in(Buffer::kInput, 0).count};
}

}  // namespace

constinit const Algorithm kAllReduceOneShot{
    .operation = Operation::kAllReduce,
    .name = "one_shot",
    .summary = "every rank sends its vector to every rank and adds locally: one hop; tiny vectors",
    .source =
        "direct exchange (Chan, Heimlich, Purkayastha & van de Geijn, Concurrency Computat.: "
        "Pract. Exper. 19(13), 2007)",
    .reduction_order = ReductionOrder::kRankOrder,
    .order_text = "rank order",
    .is_rotation_invariant = true,
    .functions = {.steps = [](const Problem& p) { return chunks_of_vector(p).count(); },
                  .step = one_shot_step,
                  .cost = one_shot_cost,
                  .scratch = one_shot_scratch}};

constinit const Algorithm kAllReduceTwoShot{
    .operation = Operation::kAllReduce,
    .name = "two_shot",
    .summary =
        "direct reduce_scatter, direct all_gather: least data in two hops; all but tiny vectors "
        "on one host",
    .source = "direct exchange (Chan et al. 2007), composed",
    .reduction_order = ReductionOrder::kRankOrder,
    .order_text = "rank order",
    .is_rotation_invariant = true,
    .functions = {.steps = [](const Problem& p) { return chunks_of_block(p).count() + 1; },
                  .step = two_shot_step,
                  .cost = two_shot_cost,
                  .scratch = two_shot_scratch}};

}  // namespace torch::comms::schedule
