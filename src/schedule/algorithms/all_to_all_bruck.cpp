#include <bit>

#include "schedule/catalogue.hpp"
#include "schedule/patterns/fold.hpp"

// Bruck's index algorithm. A block whose target is d ranks away moves 2^k ranks in round k for
// every bit k of d. All blocks that move in a round are one message. No data is rotated or packed
// in memory. Blocks leave from the input and wait in two areas of scratch in turn, so that a round
// never overwrites what it sends. Their last move ends in the output.
namespace torch::comms::schedule {
namespace {

// Returns the block whose target is d ranks away, where this rank holds it after `moves` moves.
Range waiting(const Problem& p, int d, int moves) {
  const int64_t each = p.blocks.largest();
  if (moves == 0) return p.blocks.in(Buffer::kInput, p.ring_neighbor(d));
  return {Buffer::kScratch, (moves % 2 == 0 ? p.size + d : d) * each, each};
}

int moves_before(int d, int round) {
  return std::popcount(static_cast<unsigned>(d) & ((1u << round) - 1));
}

int64_t scratch(const Problem& p) {
  const int areas = p.size < 4 ? 0 : p.size < 8 ? 1 : 2;  // waiting twice needs three bits
  return int64_t{areas} * p.size * p.blocks.largest();
}

void step(const Problem& p, int64_t t, Step& out) {
  const int round = static_cast<int>(t), distance = 1 << round;
  const int target = p.ring_neighbor(distance), source = p.ring_neighbor(-distance);
  for (int d = distance; d < p.size; ++d) {
    if ((d & distance) == 0) continue;
    const int moves = moves_before(d, round);
    const bool arrives = d >> round == 1;
    out.send(target, waiting(p, d, moves));
    out.receive(source, arrives ? p.receive_blocks.in(Buffer::kOutput, p.ring_neighbor(-d))
                                : waiting(p, d, moves + 1));
  }
  if (t == 0)
    out.copy(p.blocks.in(Buffer::kInput, p.rank), p.receive_blocks.in(Buffer::kOutput, p.rank));
}

Cost cost(const Problem& p) {
  int64_t blocks = 0;
  for (int bit = 1; bit < p.size; bit *= 2)
    blocks += p.size / (2 * bit) * bit + std::max(0, p.size % (2 * bit) - bit);
  const int64_t moved = blocks * p.blocks.largest();
  return {.messages = ceil_log2(p.size), .sent = moved, .received = moved, .scratch = scratch(p)};
}

std::string_view why_not(const Problem& p) {
  return p.blocks.equal() && p.receive_blocks.equal() ? "" : "needs the same count for all pairs";
}

}  // namespace

constinit const Algorithm kAllToAllBruck{
    .operation = Operation::kAllToAll,
    .name = "bruck",
    .summary =
        "log messages per rank instead of one per pair, each with about half of the data; tiny "
        "blocks",
    .source =
        "Bruck, Ho, Kipnis, Upfal & Weathersby, IEEE Trans. Parallel Distrib. Syst. 8(11), 1997",
    .is_rotation_invariant = true,
    .functions = {.unsupported_reason = why_not,
                  .steps = [](const Problem& p) { return int64_t{ceil_log2(p.size)}; },
                  .step = step,
                  .cost = cost,
                  .scratch = scratch}};

}  // namespace torch::comms::schedule
