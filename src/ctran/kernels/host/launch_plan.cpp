#include "ctran/kernels/host/launch_plan.hpp"

#include <algorithm>

#include "ctran/kernels/host/call_fingerprint.hpp"
#include "ctran/kernels/protocol/tiling.hpp"
#include "ctran/kernels/protocol/workspace_layout.hpp"

namespace torch::comms::ctran::kernels {
namespace {

constexpr int kWarpsOfBlock = kMostThreads / kWarp;

// Returns the bytes of a rank's part, for two hops.
size_t part_of_call(int ranks, const KernelCall& call) {
  const size_t bytes = call.count * size_of(call.dtype);
  return part_bytes(bytes, is_rooted(call.collective) ? ranks - 1 : ranks);
}

// Returns the longest run of bytes that the workers share.
size_t bytes_to_share(int ranks, const KernelCall& call, KernelShape shape) {
  const size_t bytes = call.count * size_of(call.dtype);
  return shape.two_hops ? std::min(bytes, part_of_call(ranks, call)) : bytes;
}

KernelShape shape_of(int ranks, const KernelCall& call, KernelAlgorithm algorithm) {
  if (algorithm == KernelAlgorithm::kOneShotLL) return {PacketProtocol::kLL, false};
  // From so many bytes for each worker on, long LL128 is faster.
  constexpr size_t kLongFrom = size_t{16} * 1024;
  const bool reduces = is_reduction(call.collective);
  KernelShape shape{PacketProtocol::kLL128, algorithm == KernelAlgorithm::kTwoShotLL128};
  if (reduces && needs_wide_ll128(call.dtype, call.op))
    shape.protocol = PacketProtocol::kWideLL128;
  else if (has_long_ll128(ranks) &&
           (!reduces || has_long_ll128(reducer_id_of(call.dtype, call.op))) &&
           bytes_to_share(ranks, call, shape) >=
               kLongFrom * static_cast<size_t>(ll128_workers(ranks)))
    shape.protocol = PacketProtocol::kLongLL128;
  return shape;
}

uint32_t all_but(int ranks, int rank) { return ((1u << ranks) - 1) & ~(1u << rank); }

// Sets which rank sends to which: every rank to all others, unless there is a root.
void set_peers(CollectiveParams& p, Collective collective, bool two_hops) {
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

// Sets where parts lie that are not the whole tensor, and where this rank's own part lies.
void set_part_addresses(CollectiveParams& p, Collective collective) {
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

bool is_valid(int ranks, const KernelCall& call) {
  if (ranks < 2 || ranks > kMaxRanks || call.collective > Collective::kBarrier) return false;
  if (call.algorithm > KernelAlgorithm::kTwoShotLL128 || call.blocks < 0) return false;
  if (call.collective == Collective::kBarrier) return true;
  if (size_of(call.dtype) == 0) return false;
  if (call.count > SIZE_MAX / size_of(call.dtype) / static_cast<size_t>(ranks)) return false;
  if (is_rooted(call.collective) && (call.root < 0 || call.root >= ranks)) return false;
  return !is_reduction(call.collective) || is_defined(call.dtype, call.op);
}

bool can_run(int ranks, const KernelCall& call, KernelAlgorithm algorithm, int most_blocks) {
  if (call.collective == Collective::kBarrier) return algorithm == KernelAlgorithm::kOneShotLL;
  if (algorithm == KernelAlgorithm::kAutomatic) return false;
  if (algorithm == KernelAlgorithm::kTwoShotLL128 && call.collective != Collective::kAllReduce &&
      call.collective != Collective::kBroadcast && call.collective != Collective::kReduce)
    return false;
  const LaunchPlan plan = plan_of(ranks, call, algorithm, most_blocks);
  return steps_of(plan.shape.protocol, bytes_to_share(ranks, call, plan.shape), plan.workers()) <=
         (plan.shape.protocol == PacketProtocol::kLL ? 1 : kMostSteps);
}

// A block has few warps as long as there are more blocks, so that many SMs have a little to do.
LaunchPlan plan_of(int ranks, const KernelCall& call, KernelAlgorithm algorithm, int most_blocks) {
  constexpr size_t kFewWarps = 4, kLeastWarps = 2;
  const KernelShape shape = shape_of(ranks, call, algorithm);
  if (call.collective == Collective::kBarrier) return {shape, 1, kLeastWarps * kWarp};
  const size_t tiles = quotient_up(bytes_to_share(ranks, call, shape), tile_bytes(shape.protocol));
  const int most = most_workers(shape.protocol, ranks);
  const auto most_blocks_here = static_cast<size_t>(std::clamp(most_blocks, 1, kMostBlocks));
  const size_t blocks = std::clamp<size_t>(quotient_up(tiles, kFewWarps), 1,
                                           std::min<size_t>(most_blocks_here, most / kLeastWarps));
  const size_t most_warps = std::min<size_t>(kWarpsOfBlock, static_cast<size_t>(most) / blocks);
  const size_t warps = std::clamp(quotient_up(tiles, blocks), kLeastWarps, most_warps);
  return {shape, static_cast<int>(blocks), static_cast<int>(warps) * kWarp};
}

uint64_t plan_fingerprint(const LaunchPlan& plan) {
  return static_cast<uint64_t>(plan.shape.protocol) | (plan.shape.two_hops ? uint64_t{1} : 0) << 8 |
         static_cast<uint64_t>(plan.blocks) << 16 | static_cast<uint64_t>(plan.threads) << 32;
}

TeamView team_view_of(const TeamDescriptor& team, Collective collective, uint64_t limit_ns) {
  TeamView m{};
  std::transform(team.workspace, team.workspace + team.size, m.workspace,
                 [](void* at) { return static_cast<char*>(at); });
  m.control = team.control;
  m.timeout_ns = limit_ns;
  m.rank = team.rank;
  m.size = team.size;
  m.collective = collective;
  return m;
}

bool is_lean(const CollectiveParams& params) {
  return params.is_aligned && params.bytes % 16 == 0 && !params.has_factor && params.divisor == 1;
}

CollectiveParams params_of(const TeamDescriptor& team, const KernelCall& call,
                           const LaunchPlan& plan) {
  CollectiveParams p{};
  static_cast<TeamView&>(p) = team_view_of(team, call.collective, call.timeout_ns);
  p.fingerprint = fingerprint_of(call, plan_fingerprint(plan));
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
  p.tiles = quotient_up(shared, tile_bytes(plan.shape.protocol));
  p.steps = steps_of(plan.shape.protocol, shared, plan.workers());
  const WorkspaceLayout layout(team.size);
  p.slots_offset = layout.slots_offset(plan.shape.protocol);
  p.acks = layout.acks;
  set_peers(p, call.collective, plan.shape.two_hops);
  set_part_addresses(p, call.collective);
  p.has_acks = is_rooted(call.collective);

  const uint64_t address_bits = reinterpret_cast<uintptr_t>(call.input) |
                                reinterpret_cast<uintptr_t>(call.output) | p.send_stride |
                                p.receive_stride;
  p.is_aligned = address_bits % 16 == 0;
  p.unit = unit_of(address_bits | p.bytes);
  p.nan = nan_of(call.dtype);
  if (is_reduction(call.collective)) {
    const bool divides = call.op == ReduceOpCode::kAverage && call.dtype != Dtype::kBool;
    p.divisor = divides ? static_cast<uint32_t>(team.size) : 1;
    p.has_factor = call.op == ReduceOpCode::kPremulSum;
    p.factor = call.factor;
    p.factor_value = call.factor_value;
  }
  return p;
}

}  // namespace torch::comms::ctran::kernels
