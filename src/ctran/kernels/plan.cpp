#include "ctran/kernels/plan.hpp"

#include <algorithm>

#include "ctran/kernels/print.hpp"
#include "ctran/kernels/tiling.hpp"
#include "ctran/kernels/workspace_layout.hpp"

namespace torch::comms::ctran::kernels {
namespace {

constexpr int kWarpsOfBlock = kMostThreads / kWarp;

// Of two hops: the bytes of a rank's part.
size_t part_of_call(int ranks, const Call& call) {
  const size_t bytes = call.count * size_of(call.dtype);
  return part_bytes(bytes, is_rooted(call.collective) ? ranks - 1 : ranks);
}

// The longest run of bytes that the workers share.
size_t bytes_to_share(int ranks, const Call& call, Shape shape) {
  const size_t bytes = call.count * size_of(call.dtype);
  return shape.two_hops ? std::min(bytes, part_of_call(ranks, call)) : bytes;
}

Shape shape_of(int ranks, const Call& call, Algorithm algorithm) {
  if (algorithm == Algorithm::kOneShotLL) return {WireKind::kLL, false};
  // From so many bytes for each worker, long lines are faster.
  constexpr size_t kLongFrom = size_t{16} * 1024;
  const bool reduces = is_reduction(call.collective);
  Shape shape{WireKind::kLine, algorithm == Algorithm::kTwoShotLine};
  if (reduces && needs_wide_lines(call.dtype, call.op))
    shape.wire = WireKind::kWideLine;
  else if (has_long_lines(ranks) && (!reduces || has_long_lines(cell_of(call.dtype, call.op))) &&
           bytes_to_share(ranks, call, shape) >=
               kLongFrom * static_cast<size_t>(line_workers(ranks)))
    shape.wire = WireKind::kLongLine;
  return shape;
}

uint32_t all_but(int ranks, int rank) { return ((1u << ranks) - 1) & ~(1u << rank); }

// Who sends to whom: to and from all, unless there is a root.
void set_peers(Params& p, Collective collective, bool two_hops) {
  const uint32_t peers = all_but(p.size, p.rank), root = 1u << p.root;
  const bool is_root = p.rank == p.root;
  p.send_to = p.receive_from = p.gather_to = p.gather_from = peers;
  switch (collective) {
    case Collective::kBroadcast:
    case Collective::kScatter:
      p.send_to = is_root ? peers : 0;
      p.receive_from = is_root ? 0 : root;
      p.gather_to = peers & ~root;
      p.gather_from = is_root ? 0 : peers;
      break;
    case Collective::kReduce:
    case Collective::kGather:
      if (two_hops) {
        p.gather_to = is_root ? 0 : root;
        p.gather_from = is_root ? peers : 0;
      } else {
        p.send_to = is_root ? 0 : root;
        p.receive_from = is_root ? peers : 0;
      }
      break;
    default:
      break;
  }
}

// Where the parts are that are not the whole tensor, and this rank's own.
void set_places(Params& p, Collective collective) {
  const auto rank = static_cast<size_t>(p.rank);
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kGather:
      p.receive_stride = p.bytes;
      if (p.output != nullptr) p.own_to = p.output + rank * p.bytes;
      p.output_bytes = p.bytes * static_cast<size_t>(p.size);
      break;
    case Collective::kAllToAll:
      p.send_stride = p.receive_stride = p.bytes;
      p.own = p.input + rank * p.bytes;
      p.own_to = p.output + rank * p.bytes;
      p.output_bytes = p.bytes * static_cast<size_t>(p.size);
      break;
    case Collective::kReduceScatter:
      p.send_stride = p.bytes;
      p.own = p.input + rank * p.bytes;
      break;
    case Collective::kScatter:
      p.send_stride = p.bytes;
      if (p.rank == p.root) p.own = p.input + rank * p.bytes, p.own_to = p.output;
      break;
    case Collective::kBroadcast:
      if (p.rank == p.root) p.own_to = p.output;
      break;
    default:
      break;
  }
  if (p.own_to == p.own) p.own_to = nullptr;
}

}  // namespace

bool is_sound(int ranks, const Call& call) {
  if (ranks < 2 || ranks > kMaxRanks || call.collective > Collective::kBarrier) return false;
  if (call.algorithm > Algorithm::kTwoShotLine || call.blocks < 0) return false;
  if (call.collective == Collective::kBarrier) return true;
  if (size_of(call.dtype) == 0) return false;
  if (call.count > SIZE_MAX / size_of(call.dtype) / static_cast<size_t>(ranks)) return false;
  if (is_rooted(call.collective) && (call.root < 0 || call.root >= ranks)) return false;
  return !is_reduction(call.collective) || is_defined(call.dtype, call.op);
}

bool fits(int ranks, const Call& call, Algorithm algorithm, int most_blocks) {
  if (call.collective == Collective::kBarrier) return algorithm == Algorithm::kOneShotLL;
  if (algorithm == Algorithm::kAutomatic) return false;
  if (algorithm == Algorithm::kTwoShotLine && call.collective != Collective::kAllReduce &&
      call.collective != Collective::kBroadcast && call.collective != Collective::kReduce)
    return false;
  const Plan plan = plan_of(ranks, call, algorithm, most_blocks);
  return steps_of(plan.shape.wire, bytes_to_share(ranks, call, plan.shape), plan.workers()) <=
         (plan.shape.wire == WireKind::kLL ? 1 : kMostSteps);
}

// Few warps to a block while there are blocks, so that many SMs have a little to do.
Plan plan_of(int ranks, const Call& call, Algorithm algorithm, int most_blocks) {
  constexpr size_t kFewWarps = 4, kLeastWarps = 2;
  const Shape shape = shape_of(ranks, call, algorithm);
  if (call.collective == Collective::kBarrier) return {shape, 1, kLeastWarps * kWarp};
  const size_t tiles = quotient_up(bytes_to_share(ranks, call, shape), tile_bytes(shape.wire));
  const int most = most_workers(shape.wire, ranks);
  const auto most_blocks_here = static_cast<size_t>(std::clamp(most_blocks, 1, kMostBlocks));
  const size_t blocks = std::clamp<size_t>(quotient_up(tiles, kFewWarps), 1,
                                           std::min<size_t>(most_blocks_here, most / kLeastWarps));
  const size_t most_warps = std::min<size_t>(kWarpsOfBlock, static_cast<size_t>(most) / blocks);
  const size_t warps = std::clamp(quotient_up(tiles, blocks), kLeastWarps, most_warps);
  return {shape, static_cast<int>(blocks), static_cast<int>(warps) * kWarp};
}

uint64_t way_of(const Plan& plan) {
  return static_cast<uint64_t>(plan.shape.wire) | (plan.shape.two_hops ? uint64_t{1} : 0) << 8 |
         static_cast<uint64_t>(plan.blocks) << 16 | static_cast<uint64_t>(plan.threads) << 32;
}

Membership membership_of(const Team& team, Collective collective, uint64_t limit_ns) {
  Membership m{};
  std::transform(team.workspace, team.workspace + team.size, m.workspace,
                 [](void* at) { return static_cast<char*>(at); });
  m.control = team.control;
  m.limit_ns = limit_ns;
  m.rank = team.rank;
  m.size = team.size;
  m.collective = collective;
  return m;
}

bool is_lean(const Params& params) {
  return params.aligned && params.bytes % 16 == 0 && !params.scales && params.divisor == 1;
}

Params params_of(const Team& team, const Call& call, const Plan& plan) {
  Params p{};
  static_cast<Membership&>(p) = membership_of(team, call.collective, call.limit_ns);
  p.print = print_of(call, way_of(plan));
  p.divisor = 1;
  p.unit = 8;
  if (call.collective == Collective::kBarrier) return p;

  p.root = call.root;
  p.dtype = call.dtype;
  p.input = p.own = static_cast<const char*>(call.input);
  p.output = static_cast<char*>(call.output);
  p.bytes = p.output_bytes = call.count * size_of(call.dtype);
  p.part = part_of_call(team.size, call);
  p.without_part = is_rooted(call.collective) ? call.root : kMaxRanks;
  const size_t shared = bytes_to_share(team.size, call, plan.shape);
  p.tiles = quotient_up(shared, tile_bytes(plan.shape.wire));
  p.steps = steps_of(plan.shape.wire, shared, plan.workers());
  const WorkspaceLayout layout(team.size);
  p.region = layout.region(plan.shape.wire);
  p.acks = layout.acks;
  set_peers(p, call.collective, plan.shape.two_hops);
  set_places(p, call.collective);
  p.acknowledges = is_rooted(call.collective);

  const uint64_t places = reinterpret_cast<uintptr_t>(call.input) |
                          reinterpret_cast<uintptr_t>(call.output) | p.send_stride |
                          p.receive_stride;
  p.aligned = places % 16 == 0;
  p.unit = unit_of(places | p.bytes);
  p.nan = nan_of(call.dtype);
  if (is_reduction(call.collective)) {
    const bool divides = call.op == ReduceOpCode::kAverage && call.dtype != Dtype::kBool;
    p.divisor = divides ? static_cast<uint32_t>(team.size) : 1;
    p.scales = call.op == ReduceOpCode::kPremulSum;
    p.factor = call.factor;
    p.factor_value = call.factor_value;
  }
  return p;
}

}  // namespace torch::comms::ctran::kernels
