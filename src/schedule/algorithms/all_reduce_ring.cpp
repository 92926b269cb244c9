#include "schedule/catalogue.hpp"
#include "schedule/patterns/ring.hpp"

// Ring all_reduce: size - 1 steps of reduce_scatter, then size - 1 of all_gather. In each half,
// every rank sends all blocks but one, which is the minimum for large data.
namespace torch::comms::schedule {
namespace {

int64_t steps(const Problem& p) { return 2 * int64_t{p.size - 1}; }

void ring_step(const RingPosition& ring, const Blocks& blocks, int64_t t, Step& out) {
  const auto output = [&](int64_t, int block) { return blocks.in(Buffer::kOutput, block); };
  if (t < ring.size - 1) return ring_reduce_scatter(ring, blocks, t, output, out);
  ring_all_gather(ring, blocks, output(t, ring.position), t - (ring.size - 1), out);
}

Cost ring_cost(const Blocks& blocks) {
  const int n = blocks.parts();
  // A rank omits one block in each half; the two are neighbors around the ring.
  int64_t left_out = 2 * blocks.smallest();
  if (n > 1 && blocks.total() % n == n - 1) ++left_out;
  const int64_t moved = 2 * blocks.total() - left_out;
  return {.messages = 2 * int64_t{n - 1},
          .sent = moved,
          .received = moved,
          .reduced = blocks.total() - blocks.smallest()};
}

int rings(const Problem& p) { return p.options.rings; }
Blocks part_of_rings(const Problem& p) { return Blocks::even(p.count(), rings(p)); }

std::string_view rings_why_not(const Problem& p) {
  if (p.options.rings < 1) return "needs at least one ring";
  if (p.options.local_size < 1 || p.size % p.options.local_size != 0)
    return "needs the same number of ranks on each host";
  return {};
}

void rings_step(const Problem& p, int64_t t, Step& out) {
  const Blocks parts = part_of_rings(p);
  const int local_size = p.options.local_size;
  for (int i = 0; i < rings(p); ++i) {
    Step::SubgroupMapping frame;
    frame.at[0] = {Buffer::kInput, parts.begin(i)};
    frame.at[1] = {Buffer::kOutput, parts.begin(i)};
    out.set_mapping(frame);
    ring_step(host_ring(i, p.rank, p.size / local_size, local_size),
              Blocks::even(parts.count(i), p.size), t, out);
  }
}

Cost rings_cost(const Problem& p) {
  const Blocks parts = part_of_rings(p);
  // Inside a host, all rings but one go to the same neighbor, and that one leaves the host.
  const bool split = p.options.local_size > 1 && p.options.local_size < p.size && rings(p) > 1;
  Cost sum{.messages = (split ? 2 : 1) * steps(p)};
  for (int i = 0; i < rings(p); ++i) {
    const Cost one = ring_cost(Blocks::even(parts.count(i), p.size));
    sum.sent += one.sent;
    sum.received += one.received;
    sum.reduced += one.reduced;
  }
  return sum;
}

}  // namespace

constinit const Algorithm kAllReduceRing{
    .operation = Operation::kAllReduce,
    .name = "ring",
    .summary = "least data for large vectors; latency grows with the number of ranks",
    .source = "Patarasuk & Yuan, J. Parallel Distrib. Comput. 69(2), 2009",
    .reduction_order = ReductionOrder::kFixed,
    .order_text = "block b: from rank b + 1 around the ring to rank b",
    .is_rotation_invariant = true,
    .functions = {.steps = steps,
                  .step = [](const Problem& p, int64_t t,
                             Step& out) { ring_step(rank_ring(p.rank, p.size), p.blocks, t, out); },
                  .cost = [](const Problem& p) { return ring_cost(p.blocks); }}};

constinit const Algorithm kAllReduceRings{
    .operation = Operation::kAllReduce,
    .name = "rings",
    .summary =
        "options.rings rings at once, each crossing hosts at another local rank: all NICs of a "
        "host carry data",
    .source = "ring (Patarasuk & Yuan 2009) over several host orders",
    .reduction_order = ReductionOrder::kFixed,
    .order_text = "in each ring's part as in ring, by position in that ring",
    .is_cost_upper_bound = true,
    .functions = {.unsupported_reason = rings_why_not,
                  .steps = steps,
                  .step = rings_step,
                  .cost = rings_cost}};

}  // namespace torch::comms::schedule
