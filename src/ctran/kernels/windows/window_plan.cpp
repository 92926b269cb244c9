#include "ctran/kernels/windows/window_plan.hpp"

#include <algorithm>

#include "ctran/kernels/host/call_fingerprint.hpp"
#include "ctran/kernels/host/launch_plan.hpp"
#include "ctran/kernels/protocol/workspace_layout.hpp"

namespace torch::comms::ctran::kernels {
namespace {

constexpr size_t kMB = size_t{1} << 20;

// As many blocks as the TMA units need to come near what a GPU can send. Two ranks: twice as many
// blocks are 6 % faster for long transfers (2 H200, 128 MB to the peer), and no faster at 8 MB.
// Four ranks (4 H200 and 4 H100): twice as many are 5 % faster from 16 MB to each peer on. For a
// broadcast they are so from 32 MB on, and for reductions below 4 MB a rank. Above that, 16 blocks
// take 1 to 3 % longer than 64 in reductions, but 4 % longer than 32 in a reduce-scatter. In an
// all-to-all with 4 MB to each of three peers, 96 blocks are 4 % faster.
constexpr int default_blocks(int ranks, Collective collective, size_t longest) {
  if (ranks == 2) return longest < 32 * kMB ? 16 : 32;
  if (collective == Collective::kReduceScatter) return 32;
  if (collective == Collective::kBroadcast) return longest < 32 * kMB ? 32 : 64;
  if (is_reduction(collective)) return longest < 4 * kMB ? 32 : 16;
  if (longest >= 8 * kMB) return 64;
  return collective == Collective::kAllToAll && longest >= 2 * kMB ? 96 : 32;
}

}  // namespace

bool can_run_on_window(int ranks, const KernelCall& call) {
  const bool is_supported = call.collective == Collective::kAllGather ||
                            call.collective == Collective::kAllToAll ||
                            call.collective == Collective::kBroadcast ||
                            (is_reduction(call.collective) && call.op != ReduceOpCode::kPremulSum);
  return is_supported && is_valid(ranks, call) && call.algorithm == KernelAlgorithm::kAutomatic;
}

namespace {

// Whether a rank that has elements has all the memory that the call needs.
bool has_memory(int rank, const WindowCollectiveCall& window_call) {
  const KernelCall& call = window_call.call;
  const auto* const memory = static_cast<const char*>(window_call.memory[rank]);
  const bool is_root = rank == call.root;
  if (memory == nullptr) return false;
  if (!is_reduction(call.collective)) {
    const bool reads = call.collective != Collective::kBroadcast || is_root;
    return static_cast<const char*>(call.output) >= memory && (!reads || call.input != nullptr);
  }
  if (static_cast<const char*>(call.input) < memory) return false;
  if (call.collective == Collective::kReduceScatter) return call.output != nullptr;
  return call.output == call.input || (call.collective == Collective::kReduce && !is_root);
}

}  // namespace

bool is_valid(const TeamDescriptor& team, const WindowCollectiveCall& call) {
  if (!can_run_on_window(team.size, call.call) || call.copy_method > CopyMethod::kCopyEngine)
    return false;
  if (call.call.count == 0) return true;
  return has_memory(team.rank, call);
}

CopyMethod default_copy_method(int ranks, const KernelCall& call) {
  const size_t bytes = call.count * size_of(call.dtype);
  return ranks == 2 || longest_run(call.collective, bytes, ranks) >= 8 * kMB ? CopyMethod::kTma
                                                                             : CopyMethod::kStores;
}

// The limits are bytes of a rank's part. On four H200, 128 blocks that push took 82.5 us for 16 MB
// and 314 us for 64 MB. 16 blocks that read took 94.1 and 335 us, and 96 blocks that push took as
// long. For 256 MB pushing takes 4 % less, on all SMs. At 4 MB there is no difference.
bool pushes_operands(int ranks, const WindowCollectiveCall& call) {
  constexpr size_t kLeast = 2 * kMB, kMost = 32 * kMB;
  constexpr int kLeastBlocks = 96;
  const KernelCall& one = call.call;
  const size_t part = longest_run(one.collective, one.count * size_of(one.dtype), ranks);
  return has_operand_slots(ranks) && one.collective == Collective::kAllReduce &&
         !uses_copy_engines(call) && has_long_ll128(reducer_id_of(one.dtype, one.op)) &&
         part >= kLeast && part <= kMost && (one.blocks == 0 || one.blocks >= kLeastBlocks);
}

int blocks_of(int ranks, Collective collective, size_t longest, int wanted) {
  const int most = wanted == 0 ? default_blocks(ranks, collective, longest) : wanted;
  return static_cast<int>(std::clamp<size_t>(
      quotient_up(longest, kWindowTile), 1, static_cast<size_t>(std::min(most, kMaxWindowBlocks))));
}

WindowCollectiveParams params_of(const TeamDescriptor& team, const WindowCollectiveCall& call) {
  WindowCollectiveParams p{};
  static_cast<CollectiveParams&>(p) =
      params_of(team, call.call, LaunchPlan{{PacketProtocol::kLL128, false}, 1, kWindowThreads});
  p.fingerprint = fingerprint_of(call);
  p.nan = 0;
  std::transform(call.memory, call.memory + team.size, p.memory,
                 [](void* at) { return static_cast<char*>(at); });
  const bool reduces = is_reduction(p.collective);
  const auto ranks = static_cast<size_t>(team.size);
  const char* const tensor = reduces ? p.input : p.output;
  p.location.offset = p.bytes == 0 ? 0 : static_cast<uint64_t>(tensor - p.memory[team.rank]);
  p.location.bytes = !reduces                                     ? p.output_bytes
                     : p.collective == Collective::kReduceScatter ? p.bytes * ranks
                                                                  : p.bytes;
  p.location.window_id = call.window_id;
  p.words = WorkspaceLayout(team.size).window_sync_words;
  p.operands = WorkspaceLayout(team.size).operands;
  p.forwarded = forwarded_part(p.bytes, team.size);
  p.reduce_range = reduces ? reduce_range_of(p.collective, p.bytes, p.part, p.rank) : TensorRange{};

  const bool forwards = p.collective == Collective::kBroadcast && team.size > 2;
  const size_t longest = longest_run(p.collective, p.bytes, team.size);
  p.pushes_operands = pushes_operands(team.size, call);
  const int wanted =
      p.pushes_operands && call.call.blocks == 0 ? kMaxWindowBlocks : call.call.blocks;
  p.blocks = blocks_of(team.size, p.collective, longest, wanted);
  if (reduces) p.own_to = nullptr;  // the result is made where it belongs
  p.local_copy_blocks = p.own_to != nullptr && p.bytes != 0 ? p.blocks : 0;
  p.rounds = p.pushes_operands ? PushRounds{steps_of_pushes(longest, p.blocks), 1}
                               : rounds_of_pushes(longest, p.blocks, forwards);

  // Every rank pushes to all others. A root pushes to all its peers, and these push to each other.
  const auto self = 1u << team.rank, all = (1u << team.size) - 1, root = 1u << p.root;
  p.push_to = p.pushed_from = all & ~self;
  if (p.collective == Collective::kBroadcast) {
    p.push_to &= ~root;
    if (self == root) p.pushed_from = 0;
  }
  p.write_to = p.collective == Collective::kAllReduce ? all : 0;
  if (p.collective == Collective::kReduce) p.write_to = root;
  if (!uses_copy_engines(call)) return p;
  p.has_same_offset = true;
  p.bytes = p.forwarded = 0;
  p.blocks = 1;
  p.local_copy_blocks = 0;
  p.rounds = {1, 0};
  return p;
}

}  // namespace torch::comms::ctran::kernels
