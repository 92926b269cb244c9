#include "ctran/kernels/host/algorithm_table.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "ctran/kernels/host/launch_plan.hpp"
#include "ctran/kernels/host/selection_rows.hpp"
#include "ctran/kernels/protocol/layout.hpp"

namespace torch::comms::ctran::kernels {
namespace {

constexpr size_t kKB = 1024, kMB = 1024 * kKB, kAll = SIZE_MAX;

using enum KernelAlgorithm;

constexpr SelectionRow row(Collective collective, int ranks, size_t bytes,
                           KernelAlgorithm algorithm, int blocks) {
  return {collective, {2, ranks}, {0, bytes}, algorithm, blocks};
}
// Two ranks: measured on two H200 and on two H100. Above kLarge, half of the SMs or fewer are used,
// which costs up to 16 % of the time. A matrix product beside all_reduces of 16 MB then takes 1.01
// times as long as alone; with 128 blocks it takes 1.99 times as long.
// Three and four ranks: measured on four H200. Fewer than all SMs cost up to 7 % there, and nothing
// up to kLarger.
// More ranks: computed from the cost of a hop there, and from the 0.36 MB that a GPU sends in a
// microsecond. One hop sends a tensor to each peer; two hops send it about twice in all.
constexpr size_t kLarge = 2 * kMB, kLarger = 6 * kMB, kHuge = 32 * kMB;
constexpr SelectionRow kRows[] = {
    row(Collective::kAllReduce, 2, 128 * kKB, kOneShotLL, 64),
    row(Collective::kAllReduce, 2, 512 * kKB, kOneShotLL128, 64),
    row(Collective::kAllReduce, 2, kLarge, kOneShotLL128, 128),
    row(Collective::kAllReduce, 2, kHuge, kOneShotLL128, 64),
    row(Collective::kAllReduce, 2, kAll, kTwoShotLL128, 48),
    row(Collective::kAllReduce, 4, 64 * kKB, kOneShotLL, 64),
    row(Collective::kAllReduce, 4, 384 * kKB, kOneShotLL128, 64),
    row(Collective::kAllReduce, 4, kLarge, kTwoShotLL128, 64),
    row(Collective::kAllReduce, 4, kLarger, kTwoShotLL128, 48),
    row(Collective::kAllReduce, 8, 32 * kKB, kOneShotLL, 64),
    row(Collective::kAllReduce, 8, 112 * kKB, kOneShotLL128, 64),
    row(Collective::kAllReduce, 8, kAll, kTwoShotLL128, 64),

    row(Collective::kBroadcast, 2, 128 * kKB, kOneShotLL, 64),
    row(Collective::kBroadcast, 2, kLarge, kOneShotLL128, 128),
    row(Collective::kBroadcast, 2, kAll, kOneShotLL128, 64),
    row(Collective::kBroadcast, 4, 64 * kKB, kOneShotLL, 64),
    row(Collective::kBroadcast, 4, 512 * kKB, kOneShotLL128, 64),
    row(Collective::kBroadcast, 4, kLarge, kTwoShotLL128, 64),
    row(Collective::kBroadcast, 4, kLarger, kTwoShotLL128, 48),
    row(Collective::kBroadcast, 4, kHuge, kTwoShotLL128, 64),
    row(Collective::kBroadcast, 4, kAll, kTwoShotLL128, 32),
    row(Collective::kBroadcast, 8, 32 * kKB, kOneShotLL, 64),
    row(Collective::kBroadcast, 8, 256 * kKB, kOneShotLL128, 64),
    row(Collective::kBroadcast, 8, kAll, kTwoShotLL128, 64),

    row(Collective::kReduce, 2, 128 * kKB, kOneShotLL, 64),
    row(Collective::kReduce, 2, kAll, kOneShotLL128, 128),
    row(Collective::kReduce, 4, 128 * kKB, kOneShotLL, 64),
    row(Collective::kReduce, 4, kLarge, kOneShotLL128, 64),
    row(Collective::kReduce, 4, kLarger, kTwoShotLL128, 48),
    row(Collective::kReduce, 8, 32 * kKB, kOneShotLL, 64),
    row(Collective::kReduce, 8, 256 * kKB, kOneShotLL128, 64),
    row(Collective::kReduce, 8, kAll, kTwoShotLL128, 64),
};

// The other collectives have one hop; their bytes are what each rank sends to each rank. Blocks of
// two ranks beyond kLarge (`large`) and beyond kHuge (`huge`), and of three and four ranks between
// kLarge and kLarger (`of_four`). Gather and scatter are not measured.
struct OneHopBlocks {
  Collective collective;
  int large, huge, of_four;
};
constexpr OneHopBlocks kOneHop[] = {{Collective::kAllGather, 64, 32, 128},
                                    {Collective::kReduceScatter, 64, 64, 48},
                                    {Collective::kAllToAll, 64, 48, 128},
                                    {Collective::kGather, 64, 64, 128},
                                    {Collective::kScatter, 64, 64, 128}};
constexpr size_t kRowsOfOneHop = 4 + size_t{2} * (kMaxRanks - 2) + size_t{2} * 2;

constexpr auto rows_of_one_hop() {
  std::array<SelectionRow, std::size(kOneHop) * kRowsOfOneHop> rows{};
  size_t next = 0;
  for (const auto& hop : kOneHop) {
    rows[next++] = row(hop.collective, 2, 256 * kKB, kOneShotLL, 64);
    rows[next++] = row(hop.collective, 2, kLarge, kOneShotLL128, 128);
    rows[next++] = row(hop.collective, 2, kHuge, kOneShotLL128, hop.large);
    rows[next++] = row(hop.collective, 2, kAll, kOneShotLL128, hop.huge);
    for (int ranks = 3; ranks <= kMaxRanks; ++ranks) {
      const size_t small = ranks <= 4 ? 64 * kKB : 16 * kKB;
      const auto add = [&](size_t bytes, KernelAlgorithm algorithm, int blocks) {
        rows[next++] = {hop.collective, {ranks, ranks}, {0, bytes}, algorithm, blocks};
      };
      add(small * static_cast<size_t>(ranks), kOneShotLL, 64);
      if (ranks <= 4) {
        add(kLarge, kOneShotLL128, 128);
        add(kLarger, kOneShotLL128, hop.of_four);
        add(kAll, kOneShotLL128, 64);
      } else {
        add(kAll, kOneShotLL128, 128);
      }
    }
  }
  return rows;
}
constexpr auto kRowsOfAllOneHop = rows_of_one_hop();

std::span<const SelectionRow> rows_of(Collective collective) {
  const auto* const found = std::ranges::find(kOneHop, collective, &OneHopBlocks::collective);
  if (found == std::end(kOneHop)) return kRows;
  const auto at = static_cast<size_t>(found - std::begin(kOneHop)) * kRowsOfOneHop;
  return std::span(kRowsOfAllOneHop).subspan(at, kRowsOfOneHop);
}

}  // namespace

KernelAlgorithmChoice choose_algorithm(int ranks, const KernelCall& call) {
  const int limit = call.blocks == 0 ? kMostBlocks : std::min(call.blocks, kMostBlocks);
  if (call.collective == Collective::kBarrier) return {kOneShotLL, 1};
  const SelectionKey key{call.collective, ranks,
                         call.count * size_of(call.dtype) * parts_of(call.collective, ranks),
                         element_kind_of(call), LaunchMode::kAny};
  const auto* const found = find(rows_of(call.collective), key, [&](const SelectionRow& row) {
    return can_run(ranks, call, row.algorithm, std::min(row.blocks, limit));
  });
  if (found == nullptr) return {kAutomatic, limit};  // the call needs more than 2^20 steps
  return {found->algorithm, std::min(found->blocks, limit)};
}

KernelAlgorithmChoice resolve_algorithm(int ranks, const KernelCall& call) {
  if (!is_valid(ranks, call)) return {kAutomatic, 0};
  if (call.algorithm == kAutomatic) return choose_algorithm(ranks, call);
  const int blocks = call.blocks == 0 ? kMostBlocks : call.blocks;
  return {can_run(ranks, call, call.algorithm, blocks) ? call.algorithm : kAutomatic, blocks};
}

bool needs_full_workspace(int ranks, const KernelCall& call) {
  const auto [algorithm, blocks] = resolve_algorithm(ranks, call);
  return algorithm != kAutomatic &&
         plan_of(ranks, call, algorithm, blocks).shape.protocol != PacketProtocol::kLL;
}

}  // namespace torch::comms::ctran::kernels
