#include "ctran/kernels/region_copies.hpp"

#include <algorithm>

namespace torch::comms::ctran::kernels {
namespace {

// As if kernels were to do it: who is given what.
RegionParams pushes_of(const Team& team, const RegionCall& call) {
  auto pushing = call;
  pushing.carrier = Carrier::kStores;
  return params_of(team, pushing);
}

void add(Copies& copies, char* to, const char* from, size_t bytes) {
  if (bytes != 0) copies.all[copies.count++] = {to, from, bytes};
}

// Not so where a rank has broken the promise, which the launch before finds out.
bool is_inside(const RegionCall& call, int rank, size_t at, size_t bytes) {
  return at <= call.bytes[rank] && bytes <= call.bytes[rank] - at;
}

// Gives of(peer) each of them, from each rank in another order.
template <class Of>
void for_peers(const RegionParams& p, Of of) {
  for (int i = 1; i < p.size; ++i) of(rank_after(p.rank, i, p.size));
}

// Of a chunk, what one rank makes of the result, and where its operands are in a half of scratch.
class Halves {
 public:
  Halves(const Team& team, const RegionCall& call)
      : call_(call),
        peers_(static_cast<size_t>(team.size - 1)),
        each_(call.scratch_bytes / (2 * peers_) / kScratchAlign * kScratchAlign) {}

  size_t chunk_bytes() const { return each_; }
  char* operand(int owner, int source, size_t number) const {
    return static_cast<char*>(call_.scratch[owner]) + number % 2 * peers_ * each_ +
           static_cast<size_t>(place_of(owner, source)) * each_;
  }
  Range chunk(Range made, size_t number) const {
    const size_t begin = std::min(made.begin + number * each_, made.end);
    return {begin, std::min(begin + each_, made.end)};
  }

 private:
  const RegionCall& call_;
  const size_t peers_, each_;
};

}  // namespace

int stages_of(const Team& team, const RegionCall& call) {
  return call.call.collective == Collective::kBroadcast && team.size > 2 ? 2 : 1;
}

Copies copies_of(const Team& team, const RegionCall& call, int stage) {
  const RegionParams p = pushes_of(team, call);
  Copies made;
  for_peers(p, [&](int peer) {
    if ((p.push_to >> peer & 1) == 0) return;
    const Push what = push_of(p.collective, p.root, p.bytes, p.forwarded, p.rank, peer);
    const size_t into = p.place.offset + what.into;
    if (what.forwards == (stage == 1) && is_inside(call, peer, into, what.bytes))
      add(made, p.memory[peer] + into, (what.forwards ? p.output : p.input) + what.from,
          what.bytes);
  });
  if (stage == 0 && p.own_to != nullptr) made.own = {p.own_to, p.own, p.bytes};
  return made;
}

bool wants_side(const Team& team, const RegionCall& call) {
  return call.carrier == Carrier::kCopies && !is_reduction(call.call.collective) &&
         is_sound(team, call) && copies_of(team, call, 0).own.bytes >= kLeastBeside;
}

size_t chunks_of(const Team& team, const RegionCall& call) {
  if (call.call.count == 0) return 0;
  const RegionParams p = pushes_of(team, call);
  // Part 0 is as long as any.
  const Range longest = made_by(p.collective, p.bytes, p.part, 0);
  return quotient_up(longest.end - longest.begin, Halves(team, call).chunk_bytes());
}

Chunk chunk_of(const Team& team, const RegionCall& call, size_t number) {
  const Halves halves(team, call);
  const RegionParams all = pushes_of(team, call);
  Chunk chunk{{}, all, {}, false};
  for_peers(all, [&](int peer) {
    const Range what = halves.chunk(made_by(all.collective, all.bytes, all.part, peer), number);
    add(chunk.in, halves.operand(peer, all.rank, number), all.input + what.begin,
        what.end - what.begin);
  });

  const Range what = halves.chunk(all.made, number);
  const size_t bytes = what.end - what.begin, at = all.place.offset + what.begin;
  if (bytes == 0) return chunk;
  chunk.has_sum = true;
  RegionParams& p = chunk.sum;
  p.memory[p.rank] = const_cast<char*>(p.input) + what.begin;
  for_peers(all, [&](int peer) { p.memory[peer] = halves.operand(p.rank, peer, number); });
  const bool has_output = p.write_to == 0 || (p.write_to >> p.rank & 1) != 0;
  if (!has_output)
    p.output = p.memory[(p.rank + 1) % p.size];  // in the place of an operand
  else
    p.output += p.write_to == 0 ? what.begin - all.made.begin : what.begin;
  for_peers(all, [&](int peer) {
    if ((all.write_to >> peer & 1) != 0 && is_inside(call, peer, at, bytes))
      add(chunk.out, all.memory[peer] + at, p.output, bytes);
  });

  p.meets = false;
  p.made = {0, bytes};
  p.write_to = 0;
  p.blocks = region_blocks(bytes, call.call.blocks, kSumBlocks);
  return chunk;
}

}  // namespace torch::comms::ctran::kernels
