#include "ctran/kernels/region_copies.hpp"

#include "ctran/kernels/print.hpp"

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

// What this rank gives a peer in a stage, from `from` to its place in the peer's memory.
struct Given {
  const char* from;
  size_t into, bytes;
};
Given given_to(const RegionParams& p, int peer, int stage) {
  if (is_reduction(p.collective))
    return {p.input + p.made.begin, p.made.begin, p.made.end - p.made.begin};
  const Push what = push_of(p.collective, p.root, p.bytes, p.forwarded, p.rank, peer);
  if (what.forwards != (stage == 1)) return {};
  return {(what.forwards ? p.output : p.input) + what.from, what.into, what.bytes};
}

}  // namespace

int stages_of(const Team& team, const RegionCall& call) {
  return call.call.collective == Collective::kBroadcast && team.size > 2 ? 2 : 1;
}

Copies copies_of(const Team& team, const RegionCall& call, int stage) {
  const RegionParams p = pushes_of(team, call);
  Copies made;
  for_peers(p, [&](int peer) {
    if ((p.push_to >> peer & 1) == 0) return;
    const auto [from, offset, bytes] = given_to(p, peer, stage);
    const size_t into = p.place.offset + offset;
    if (is_inside(call, peer, into, bytes)) add(made, p.memory[peer] + into, from, bytes);
  });
  if (stage == 0 && p.own_to != nullptr) made.own = {p.own_to, p.own, p.bytes};
  return made;
}

bool wants_side(const Team& team, const RegionCall& call) {
  return is_by_copies(call) && is_sound(team, call) &&
         copies_of(team, call, 0).own.bytes >= kLeastBeside;
}

RegionParams sum_of(const Team& team, const RegionCall& call) {
  RegionParams p = pushes_of(team, call);
  p.print = print_of(call);
  p.is_one_place = true;
  p.write_to = 1u << p.rank;
  p.pushes_operands = false;
  p.pushed_from = 0;
  // It reads and writes what a reduce-scatter does.
  p.blocks =
      blocks_of(team.size, Collective::kReduceScatter, p.made.end - p.made.begin, call.call.blocks);
  return p;
}

}  // namespace torch::comms::ctran::kernels
