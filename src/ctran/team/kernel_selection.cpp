#include "ctran/team/kernel_selection.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

#include <torchcomms/base/error.hpp>

namespace torch::comms::ctran {
namespace {

using kernels::Collective;
using kernels::KernelAlgorithm;
using kernels::SelectionRow;

constexpr size_t kMega = size_t{1} << 20;
constexpr size_t kAnySize = ~size_t{0};

constexpr SelectionRow kernels_up_to(Collective collective, int ranks, size_t bytes) {
  return {collective, {2, ranks}, {0, bytes}, KernelAlgorithm::kAutomatic, 0};
}
// Up to these sizes kernels are faster than NCCL. For 2, 3 and 4 ranks they were measured in graphs
// on two and on four H200 with NVLink. For more ranks they follow the model of hops and bytes.
// Scatter has no row: its root has a list of tensors, and the other ranks do not know how they lie.
constexpr SelectionRow kDefaultRows[] = {
    kernels_up_to(Collective::kAllReduce, 2, 256 * kMega),
    kernels_up_to(Collective::kAllReduce, 8, 16 * kMega),
    kernels_up_to(Collective::kAllGather, 2, 256 * kMega),
    kernels_up_to(Collective::kAllGather, 4, 128 * kMega),
    kernels_up_to(Collective::kAllGather, 8, 64 * kMega),
    kernels_up_to(Collective::kReduceScatter, 2, 256 * kMega),
    kernels_up_to(Collective::kReduceScatter, 4, 128 * kMega),
    kernels_up_to(Collective::kReduceScatter, 8, 32 * kMega),
    kernels_up_to(Collective::kAllToAll, 2, 256 * kMega),
    kernels_up_to(Collective::kAllToAll, 8, 64 * kMega),
    kernels_up_to(Collective::kBroadcast, 2, 32 * kMega),
    kernels_up_to(Collective::kBroadcast, 4, 16 * kMega),
    kernels_up_to(Collective::kBroadcast, 8, 4 * kMega),
    kernels_up_to(Collective::kReduce, 2, 32 * kMega),
    kernels_up_to(Collective::kReduce, 8, 4 * kMega),
    kernels_up_to(Collective::kGather, 8, 4 * kMega),
    kernels_up_to(Collective::kBarrier, 8, kAnySize),
};

constexpr int kMaxRequestedBlocks = 1024;

struct CtranAlgorithmName {
  std::string_view name, local_name;
};
constexpr CtranAlgorithmName kCtranAlgorithmNames[] = {
    {"ctran", "kernels"},        {"ctgraph", "kernels"},          {"ctdirect", "one_shot_line"},
    {"ctring", "two_shot_line"}, {"ctpipeline", "two_shot_line"}, {"ctrd", "one_shot_ll"},
    {"ctp2p", "nccl"},
};

// Returns what `name`, perhaps a name of CTRAN, is called here.
std::string_view nearest(std::string_view name, bool has_library) noexcept {
  const auto* const found =
      std::ranges::find(kCtranAlgorithmNames, name, &CtranAlgorithmName::name);
  if (found == std::end(kCtranAlgorithmNames)) return name;
  const bool is_algorithm = found->local_name != "kernels" && found->local_name != "nccl";
  return has_library || is_algorithm ? found->local_name : "auto";
}

}  // namespace

std::span<const SelectionRow> default_rows() noexcept { return kDefaultRows; }

bool prefers_kernels(Collective collective, int32_t ranks, size_t bytes) noexcept {
  const kernels::SelectionKey key{collective, ranks, bytes, kernels::ElementKind::kAny,
                                  kernels::LaunchMode::kAny};
  return kernels::find(kDefaultRows, key, [](const SelectionRow&) { return true; }) != nullptr;
}

MeasuredRows::MeasuredRows(std::vector<SelectionRow> rows)
    : rows_(std::move(rows)),
      has_registered_(std::ranges::any_of(rows_, [](const SelectionRow& row) {
        return row.memory == kernels::TensorMemory::kRegistered;
      })) {}

bool MeasuredRows::has_modes(Collective collective) const noexcept {
  return std::ranges::any_of(rows_, [&](const SelectionRow& row) {
    return row.collective == collective && row.mode != kernels::LaunchMode::kAny;
  });
}

bool is_ctran_algorithm(std::string_view name) noexcept {
  return std::ranges::find(kCtranAlgorithmNames, name, &CtranAlgorithmName::name) !=
         std::end(kCtranAlgorithmNames);
}

KernelPreference parse_kernel_preference(std::string_view setting, std::string_view text,
                                         bool has_library) {
  using Provider = KernelPreference::KernelProvider;
  const auto slash = text.find('/');
  const auto name = nearest(text.substr(0, slash), has_library);
  const auto parse_name = [&]() -> std::optional<KernelPreference> {
    if (name == "auto") return KernelPreference{};
    if (has_library && name == "nccl" && slash == std::string_view::npos)
      return KernelPreference{Provider::kVendor};
    if (has_library && name == "kernels") return KernelPreference{Provider::kKernels};
    for (int i = 1; i < kernels::kAlgorithms; ++i)
      if (name == name_of(static_cast<KernelAlgorithm>(i)))
        return KernelPreference{Provider::kKernels, static_cast<KernelAlgorithm>(i)};
    return std::nullopt;
  };
  std::string allowed;
  if (auto preference = parse_name()) {
    if (slash == std::string_view::npos) return *preference;
    const auto number = text.substr(slash + 1);
    const auto* const end = text.data() + text.size();
    const auto [last, code] = std::from_chars(end - number.size(), end, preference->blocks);
    if (code == std::errc{} && last == end && preference->blocks >= 1 &&
        preference->blocks <= kMaxRequestedBlocks)
      return *preference;
    allowed = std::string(name) + "/<blocks>, 1 to " + std::to_string(kMaxRequestedBlocks);
  } else {
    allowed = has_library ? "auto, nccl, kernels" : "auto";
    for (int i = 1; i < kernels::kAlgorithms; ++i)
      allowed += (i + 1 < kernels::kAlgorithms ? ", " : " or ") +
                 std::string(name_of(static_cast<KernelAlgorithm>(i)));
  }
  throw CommError(Errc::kInvalidArgument, std::string(setting) + "='" + std::string(text) +
                                              "' is not allowed: expected " + allowed);
}

}  // namespace torch::comms::ctran
