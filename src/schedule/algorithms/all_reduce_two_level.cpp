#include "schedule/catalogue.hpp"
#include "schedule/patterns/direct.hpp"

// all_reduce over hosts. Inside each host every rank reduces one block, directly. Between hosts,
// the ranks with the same local rank all_reduce that block, all local ranks at once, so that every
// NIC carries its share. Inside each host the ranks then all_gather the blocks, directly.
namespace torch::comms::schedule {
namespace {

struct Levels {
  explicit Levels(const Problem& p)
      : local_size(p.options.local_size),
        hosts(p.size / local_size),
        host(p.rank / local_size),
        local(p.rank % local_size),
        blocks(Blocks::even(p.count(), local_size)) {}

  int local_size, hosts, host, local;
  Blocks blocks;

  Problem between(const Problem& p, int64_t count) const {
    return vector_problem(Operation::kAllReduce, host, hosts, count, 0, p.options);
  }
  // The steps inside a host use chunks, which bound the scratch. The steps between hosts need none.
  Chunks chunks(const Problem& p) const { return {blocks.largest(), p.options.chunk}; }
  int64_t steps_before(const Problem& p) const { return local_size > 1 ? chunks(p).count() : 0; }
  int64_t steps_between(const Problem& p) const {
    return hosts > 1 ? kAllReduceHalving.steps(between(p, p.count())) : 0;
  }
};

std::string_view why_not(const Problem& p) {
  if (p.options.local_size < 1 || p.size % p.options.local_size != 0)
    return "needs the same number of ranks on each host";
  return {};
}

int64_t steps(const Problem& p) {
  const Levels levels(p);
  return levels.steps_before(p) + levels.steps_between(p) + (levels.local_size > 1 ? 1 : 0);
}

void step(const Problem& p, int64_t t, Step& out) {
  const Levels levels(p);
  const Range mine = levels.blocks.in(Buffer::kOutput, levels.local);
  const int64_t first = levels.steps_before(p);
  if (t >= first && t < first + levels.steps_between(p)) {
    // In place in this rank's block, which holds the sum of its host.
    const Range input{first > 0 ? Buffer::kOutput : Buffer::kInput, mine.begin};
    out.set_mapping({.first = levels.local, .stride = levels.local_size, .at = {input, mine, {}}});
    return kAllReduceHalving.functions.step(levels.between(p, mine.count), t - first, out);
  }
  out.set_mapping({.first = levels.host * levels.local_size});
  if (t < first)
    direct_reduce_scatter(levels.local, levels.blocks, levels.chunks(p), t,
                          levels.chunks(p).of(mine, t), out);
  else
    direct_all_gather(levels.local, levels.blocks, {levels.blocks.largest(), 0}, 0, mine, out);
}

Cost cost(const Problem& p) {
  const Levels levels(p);
  const int64_t peers = levels.local_size - 1, largest = levels.blocks.largest();
  Cost cost = kAllReduceHalving.cost(levels.between(p, largest));
  cost.messages += peers * (levels.chunks(p).count() + 1);
  cost.sent += p.count() + (peers - 1) * largest;
  cost.received += p.count() + (peers - 1) * largest;
  cost.reduced += peers * largest;
  cost.scratch = peers * levels.chunks(p).in(Buffer::kInput, 0).count;
  return cost;
}

}  // namespace

constinit const Algorithm kAllReduceTwoLevel{
    .operation = Operation::kAllReduce,
    .name = "two_level",
    .summary =
        "direct inside hosts of options.local_size ranks, halving between them: least data on the "
        "network",
    .source = "direct and halving (Rabenseifner 2004), composed over hosts x local ranks",
    .reduction_order = ReductionOrder::kFixed,
    .order_text = "rank order inside a host, then hosts as in halving",
    .functions = {.unsupported_reason = why_not,
                  .steps = steps,
                  .step = step,
                  .cost = cost,
                  .scratch = [](const Problem& p) {
                    const Levels levels(p);
                    const Range mine = levels.blocks.in(Buffer::kInput, levels.local);
                    return (levels.local_size - 1) * levels.chunks(p).of(mine, 0).count;
                  }}};

}  // namespace torch::comms::schedule
