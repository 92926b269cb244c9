#include "ctran/kernels/windows/window_copies.hpp"

#include "ctran/kernels/host/call_fingerprint.hpp"

namespace torch::comms::ctran::kernels {
namespace {

// Returns the parameters of the same call by kernels, which say what each rank pushes.
WindowCollectiveParams pushes_of(const TeamDescriptor& team, const WindowCollectiveCall& call) {
  auto pushed_call = call;
  pushed_call.copy_method = CopyMethod::kStores;
  return params_of(team, pushed_call);
}

void add(DeviceCopies& copies, char* to, const char* from, size_t bytes) {
  if (bytes != 0) copies.all[copies.count++] = {to, from, bytes};
}

// Whether a copy stays inside the memory of `rank`. It may not if that rank breaks the promise of
// equal offsets, which the launch before the copies detects.
bool is_inside(const WindowCollectiveCall& call, int rank, size_t at, size_t bytes) {
  return at <= call.bytes[rank] && bytes <= call.bytes[rank] - at;
}

// Calls of(peer) for each peer; each rank begins with a different one.
template <class Of>
void for_peers(const WindowCollectiveParams& p, Of of) {
  for (int i = 1; i < p.size; ++i) of(rank_after(p.rank, i, p.size));
}

// What this rank copies to a peer in a stage: from `from` to offset `into` of the peer's tensor.
struct CopySource {
  const char* from;
  size_t into, bytes;
};
CopySource copy_source_of(const WindowCollectiveParams& p, int peer, int stage) {
  if (is_reduction(p.collective))
    return {p.input + p.reduce_range.begin, p.reduce_range.begin,
            p.reduce_range.end - p.reduce_range.begin};
  const PushedRange what = push_of(p.collective, p.root, p.bytes, p.forwarded, p.rank, peer);
  if (what.is_forwarded != (stage == 1)) return {};
  return {(what.is_forwarded ? p.output : p.input) + what.from, what.into, what.bytes};
}

}  // namespace

int stages_of(const TeamDescriptor& team, const WindowCollectiveCall& call) {
  return call.call.collective == Collective::kBroadcast && team.size > 2 ? 2 : 1;
}

DeviceCopies copies_of(const TeamDescriptor& team, const WindowCollectiveCall& call, int stage) {
  const WindowCollectiveParams p = pushes_of(team, call);
  DeviceCopies copies;
  for_peers(p, [&](int peer) {
    if ((p.push_to >> peer & 1) == 0) return;
    const auto [from, offset, bytes] = copy_source_of(p, peer, stage);
    const size_t into = p.location.offset + offset;
    if (is_inside(call, peer, into, bytes)) add(copies, p.memory[peer] + into, from, bytes);
  });
  if (stage == 0 && p.own_to != nullptr) copies.local = {p.own_to, p.own, p.bytes};
  return copies;
}

bool needs_side_stream(const TeamDescriptor& team, const WindowCollectiveCall& call) {
  return uses_copy_engines(call) && is_valid(team, call) &&
         copies_of(team, call, 0).local.bytes >= kForkMinBytes;
}

WindowCollectiveParams local_reduction_params(const TeamDescriptor& team,
                                              const WindowCollectiveCall& call) {
  WindowCollectiveParams p = pushes_of(team, call);
  p.fingerprint = fingerprint_of(call);
  p.has_same_offset = true;
  p.write_to = 1u << p.rank;
  p.pushes_operands = false;
  p.pushed_from = 0;
  // The kernel reads and writes as much as a reduce-scatter does.
  p.blocks = blocks_of(team.size, Collective::kReduceScatter,
                       p.reduce_range.end - p.reduce_range.begin, call.call.blocks);
  return p;
}

}  // namespace torch::comms::ctran::kernels
