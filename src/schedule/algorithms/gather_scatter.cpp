#include "schedule/catalogue.hpp"

// gather and scatter in one step. Blocks may differ in size.
namespace torch::comms::schedule {
namespace {

Range input(const Problem& p) { return {Buffer::kInput, 0, p.blocks.count(p.rank)}; }
Range output(const Problem& p) { return {Buffer::kOutput, 0, p.blocks.count(p.rank)}; }

int64_t one_step(const Problem&) { return 1; }

void gather_step(const Problem& p, int64_t, Step& out) {
  if (p.rank != p.root) return out.send(p.root, input(p));
  for (int d = 1; d < p.size; ++d)
    out.receive(p.ring_neighbor(d), p.blocks.in(Buffer::kOutput, p.ring_neighbor(d)));
  out.copy(input(p), p.blocks.in(Buffer::kOutput, p.rank));
}

void scatter_step(const Problem& p, int64_t, Step& out) {
  if (p.rank != p.root) return out.receive(p.root, output(p));
  for (int d = 1; d < p.size; ++d)
    out.send(p.ring_neighbor(d), p.blocks.in(Buffer::kInput, p.ring_neighbor(d)));
  out.copy(p.blocks.in(Buffer::kInput, p.rank), output(p));
}

int64_t largest_peer_block(const Problem& p) {
  if (p.blocks.equal()) return p.blocks.largest();
  int64_t largest = 0;
  for (int rank = 0; rank < p.size; ++rank)
    if (rank != p.root) largest = std::max(largest, p.blocks.count(rank));
  return largest;
}

Cost gather_cost(const Problem& p) {
  return {
      .messages = 1, .sent = largest_peer_block(p), .received = p.count() - p.blocks.count(p.root)};
}

Cost scatter_cost(const Problem& p) {
  return {.messages = p.size - 1,
          .sent = p.count() - p.blocks.count(p.root),
          .received = largest_peer_block(p)};
}

}  // namespace

constinit const Algorithm kGatherDirect{
    .operation = Operation::kGather,
    .name = "direct",
    .summary = "every rank sends to the root: one hop; large blocks, few ranks",
    .source = "flat tree: Chan et al. 2007",
    .functions = {.steps = one_step, .step = gather_step, .cost = gather_cost}};

constinit const Algorithm kScatterDirect{
    .operation = Operation::kScatter,
    .name = "direct",
    .summary = "the root sends every rank its block: one hop; large blocks, few ranks",
    .source = "flat tree: Chan et al. 2007",
    .functions = {.steps = one_step, .step = scatter_step, .cost = scatter_cost}};

}  // namespace torch::comms::schedule
