#include "schedule/catalogue.hpp"
#include "schedule/direct.hpp"

// All_reduce over a switch or shared memory, where everybody reaches everybody in one hop.
namespace torch::comms::schedule {
namespace {

void one_shot_step(const Problem& p, int64_t, Step& out) {
  const Range mine{Buffer::kInput, 0, p.count()};
  exchange(
      p.rank, p.size, [&](int) { return mine; },
      [&](int peer) { return contribution(p.rank, peer, p.count()); }, out);
  add_in_rank_order(p.rank, p.size, mine, {Buffer::kOutput, 0, p.count()}, out);
}

void two_shot_step(const Problem& p, int64_t t, Step& out) {
  const Range mine = p.blocks.in(Buffer::kOutput, p.rank);
  if (t == 0)
    direct_reduce_scatter(p.rank, p.blocks, mine, out);
  else
    direct_all_gather(p.rank, p.blocks, mine, out);
}

Cost one_shot_cost(const Problem& p) {
  const int64_t others = p.size - 1, all = others * p.count();
  return {.messages = others, .sent = all, .received = all, .reduced = all, .scratch = all};
}

Cost two_shot_cost(const Problem& p) {
  const int64_t others = p.size - 1, largest = p.blocks.largest();
  const int64_t moved = p.count() + (others - 1) * largest;
  return {.messages = 2 * others,
          .sent = moved,
          .received = moved,
          .reduced = others * largest,
          .scratch = others * largest};
}

}  // namespace

constinit const Algorithm kAllReduceOneShot{
    .operation = Operation::kAllReduce,
    .name = "one_shot",
    .summary = "everybody sends everything to everybody and adds for itself: one hop; tiny vectors",
    .source =
        "direct exchange (Chan, Heimlich, Purkayastha & van de Geijn, Concurrency Computat.: "
        "Pract. Exper. 19(13), 2007)",
    .addition = Addition::kRankOrder,
    .order = "rank order",
    .rotates = true,
    .rules = {.steps = [](const Problem&) { return int64_t{1}; },
              .step = one_shot_step,
              .cost = one_shot_cost,
              .scratch = [](const Problem& p) { return (p.size - 1) * p.count(); }}};

constinit const Algorithm kAllReduceTwoShot{
    .operation = Operation::kAllReduce,
    .name = "two_shot",
    .summary =
        "direct reduce_scatter, direct all_gather: least data in two hops; all but tiny vectors "
        "on one host",
    .source = "direct exchange (Chan et al. 2007), composed",
    .addition = Addition::kRankOrder,
    .order = "rank order",
    .rotates = true,
    .rules = {.steps = [](const Problem&) { return int64_t{2}; },
              .step = two_shot_step,
              .cost = two_shot_cost,
              .scratch = [](const Problem& p) { return (p.size - 1) * p.blocks.count(p.rank); }}};

}  // namespace torch::comms::schedule
