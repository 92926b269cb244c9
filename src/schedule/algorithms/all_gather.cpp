#include "schedule/catalogue.hpp"
#include "schedule/patterns/direct.hpp"
#include "schedule/patterns/ring.hpp"

// all_gather without a tree. Blocks may differ in size.
namespace torch::comms::schedule {
namespace {

Range input(const Problem& p) { return {Buffer::kInput, 0, p.input_count()}; }

// Copies the own block to the output during the first transfers, which read the input.
void place_own_block(const Problem& p, int64_t t, Step& out) {
  if (t == 0) out.copy(input(p), p.blocks.in(Buffer::kOutput, p.rank));
}

void direct_step(const Problem& p, int64_t t, Step& out) {
  direct_all_gather(p.rank, p.blocks, {p.blocks.largest(), 0}, t, input(p), out);
  place_own_block(p, t, out);
}

Cost direct_cost(const Problem& p) {
  const int64_t peers = p.size - 1;
  return {.messages = peers,
          .sent = peers * p.blocks.largest(),
          .received = p.count() - p.blocks.smallest()};
}

void ring_step(const Problem& p, int64_t t, Step& out) {
  ring_all_gather(rank_ring(p.rank, p.size), p.blocks, input(p), t, out);
  place_own_block(p, t, out);
}

Cost ring_cost(const Problem& p) {
  const int64_t moved = p.count() - p.blocks.smallest();
  return {.messages = p.size - 1, .sent = moved, .received = moved};
}

// Every hop of the ring takes as many steps as the largest block has chunks.
Chunks chunks_of(const Problem& p) { return {p.blocks.largest(), p.options.chunk}; }

void pipelined_ring_step(const Problem& p, int64_t t, Step& out) {
  const Chunks chunks = chunks_of(p);
  const int64_t hop = t / chunks.count(), chunk = t % chunks.count();
  const RingPosition ring = rank_ring(p.rank, p.size);
  const Range sent = hop == 0 ? input(p) : p.blocks.in(Buffer::kOutput, ring.around(-hop));
  const Range received = p.blocks.in(Buffer::kOutput, ring.around(-1 - hop));
  out.send(ring.next, chunks.of(sent, chunk));
  out.receive(ring.previous, chunks.of(received, chunk));
  place_own_block(p, t, out);
}

int64_t pipelined_ring_steps(const Problem& p) { return (p.size - 1) * chunks_of(p).count(); }

}  // namespace

constinit const Algorithm kAllGatherDirect{
    .operation = Operation::kAllGather,
    .name = "direct",
    .summary = "every rank sends its block to every rank: one hop; best on one host",
    .source = "direct exchange (Chan et al. 2007)",
    .is_rotation_invariant = true,
    .functions = {.steps = [](const Problem&) { return int64_t{1}; },
                  .step = direct_step,
                  .cost = direct_cost}};

constinit const Algorithm kAllGatherRing{
    .operation = Operation::kAllGather,
    .name = "ring",
    .summary = "blocks go around the ring, neighbors only; large blocks between hosts",
    .source = "bucket algorithm: Chan et al. 2007",
    .is_rotation_invariant = true,
    .functions = {.steps = [](const Problem& p) { return int64_t{p.size - 1}; },
                  .step = ring_step,
                  .cost = ring_cost}};

constinit const Algorithm kAllGatherPipelinedRing{
    .operation = Operation::kAllGather,
    .name = "pipelined_ring",
    .summary =
        "ring in chunks: what a step passes on came a whole hop of chunks earlier, so that hops "
        "overlap",
    .source = "bucket algorithm (Chan et al. 2007), in chunks",
    .is_rotation_invariant = true,
    .functions = {
        .steps = pipelined_ring_steps, .step = pipelined_ring_step, .cost = [](const Problem& p) {
          Cost cost = ring_cost(p);
          cost.messages = pipelined_ring_steps(p);
          return cost;
        }}};

}  // namespace torch::comms::schedule
