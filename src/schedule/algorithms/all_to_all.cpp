#include "schedule/catalogue.hpp"
#include "schedule/patterns/direct.hpp"

// all_to_all in which every block goes directly to its target. Counts may differ for all pairs.
namespace torch::comms::schedule {
namespace {

Range sent(const Problem& p, int peer) { return p.blocks.in(Buffer::kInput, peer); }
Range received(const Problem& p, int peer) { return p.receive_blocks.in(Buffer::kOutput, peer); }

void direct_step(const Problem& p, int64_t, Step& out) {
  exchange_with_all(
      p.rank, p.size, [&](int peer) { return sent(p, peer); },
      [&](int peer) { return received(p, peer); }, out);
  out.copy(sent(p, p.rank), received(p, p.rank));
}

void pairwise_step(const Problem& p, int64_t t, Step& out) {
  const int target = p.ring_neighbor(t + 1), source = p.ring_neighbor(-1 - t);
  out.send(target, sent(p, target));
  out.receive(source, received(p, source));
  if (t == 0) out.copy(sent(p, p.rank), received(p, p.rank));
}

Cost cost(const Problem& p) {
  return {.messages = p.size - 1,
          .sent = p.blocks.total() - p.blocks.count(p.rank),
          .received = p.receive_blocks.total() - p.receive_blocks.count(p.rank)};
}

}  // namespace

constinit const Algorithm kAllToAllDirect{
    .operation = Operation::kAllToAll,
    .name = "direct",
    .summary = "all blocks at once: one hop; best on one host",
    .source = "direct exchange (Thakur, Rabenseifner & Gropp 2005)",
    .is_rotation_invariant = true,
    .functions = {
        .steps = [](const Problem&) { return int64_t{1}; }, .step = direct_step, .cost = cost}};

constinit const Algorithm kAllToAllPairwise{
    .operation = Operation::kAllToAll,
    .name = "pairwise",
    .summary = "one target and one source per step: no rank is flooded; large blocks, many ranks",
    .source = "pairwise exchange: Thakur, Rabenseifner & Gropp 2005",
    .is_rotation_invariant = true,
    .functions = {.steps = [](const Problem& p) { return int64_t{p.size - 1}; },
                  .step = pairwise_step,
                  .cost = cost}};

}  // namespace torch::comms::schedule
