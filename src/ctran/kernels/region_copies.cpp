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
  for (int i = 1; i < p.size; ++i) of((p.rank + i) % p.size);
}

size_t chunk_bytes(const Team& team, const RegionCall& call) {
  return call.scratch_bytes / static_cast<size_t>(team.size - 1) / kScratchAlign * kScratchAlign;
}

}  // namespace

int stages_of(const Team& team, const RegionCall& call) {
  return call.call.collective == Collective::kBroadcast && team.size > 2 ? 2 : 1;
}

Copies copies_of(const Team& team, const RegionCall& call, int stage) {
  const RegionParams p = pushes_of(team, call);
  Copies made;
  // Those to peers first, for they take longer.
  for_peers(p, [&](int peer) {
    if ((p.push_to >> peer & 1) == 0) return;
    const Push what = push_of(p.collective, p.root, p.bytes, p.forwarded, p.rank, peer);
    const size_t into = p.place.offset + what.into;
    if (what.forwards == (stage == 1) && is_inside(call, peer, into, what.bytes))
      add(made, p.memory[peer] + into, (what.forwards ? p.output : p.input) + what.from,
          what.bytes);
  });
  if (stage == 0 && p.own_to != nullptr) add(made, p.own_to, p.own, p.bytes);
  return made;
}

size_t chunks_of(const Team& team, const RegionCall& call) {
  if (call.call.count == 0) return 0;
  const Range made = pushes_of(team, call).made;
  return quotient_up(made.end - made.begin, chunk_bytes(team, call));
}

Chunk chunk_of(const Team& team, const RegionCall& call, size_t number) {
  Chunk chunk{{}, pushes_of(team, call), {}};
  RegionParams& p = chunk.sum;
  const size_t each = chunk_bytes(team, call), begin = p.made.begin + number * each,
               bytes = std::min(each, p.made.end - begin), at = p.place.offset + begin;
  const RegionParams all = p;

  auto* const scratch = static_cast<char*>(call.scratch);
  p.memory[p.rank] = const_cast<char*>(p.input) + begin;
  for_peers(all, [&](int peer) {
    p.memory[peer] = scratch + each * static_cast<size_t>(place_of(p.rank, peer));
    if (is_inside(call, peer, at, bytes))
      add(chunk.in, p.memory[peer], all.memory[peer] + at, bytes);
  });

  const bool has_output = p.write_to == 0 || (p.write_to >> p.rank & 1) != 0;
  if (!has_output)
    p.output = scratch;  // in the place of an operand
  else
    p.output += p.write_to == 0 ? begin - all.made.begin : begin;
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
