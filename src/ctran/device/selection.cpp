#include "ctran/device/selection.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#include <torchcomms/base/error.hpp>

namespace torch::comms::ctran {
namespace {

using kernels::Algorithm;
using kernels::Collective;

constexpr size_t kMega = size_t{1} << 20;
constexpr size_t kAnySize = ~size_t{0};

// For 2 ranks as far as the kernels were measured ahead of NCCL, in graphs on two H200 with NVLink;
// for more ranks where prototypes were, or the model of hops and bytes says so. Scatter has none:
// its root has a list of tensors, and the others do not know how they lie.
constexpr Preference kPreferences[] = {
    // clang-format off: a row a line
    {Collective::kAllReduce, 2, 256 * kMega},
    {Collective::kAllReduce, 4, 32 * kMega},
    {Collective::kAllReduce, 8, 16 * kMega},
    {Collective::kAllGather, 2, 256 * kMega},
    {Collective::kAllGather, 8, 64 * kMega},
    {Collective::kReduceScatter, 2, 256 * kMega},
    {Collective::kReduceScatter, 8, 32 * kMega},
    {Collective::kAllToAll, 2, 256 * kMega},
    {Collective::kAllToAll, 8, 64 * kMega},
    {Collective::kBroadcast, 2, 32 * kMega},
    {Collective::kBroadcast, 8, 4 * kMega},
    {Collective::kReduce, 2, 32 * kMega},
    {Collective::kReduce, 8, 4 * kMega},
    {Collective::kGather, 8, 4 * kMega},
    {Collective::kBarrier, 8, kAnySize},
    // clang-format on
};

constexpr std::array<std::string_view, kernels::kAlgorithms> kAlgorithmNames = {
    "automatic", "one_shot_ll", "one_shot_line", "two_shot_line"};
constexpr std::string_view kCollectiveNames[] = {"all_reduce",
                                                 "all_gather_single",
                                                 "reduce_scatter_single",
                                                 "all_to_all_single",
                                                 "broadcast",
                                                 "reduce",
                                                 "gather_single",
                                                 "scatter",
                                                 "barrier",
                                                 "send_recv",
                                                 "signal",
                                                 "wait_signal",
                                                 "device_alltoallv_single",
                                                 "reduce_scatter_quantized"};

}  // namespace

std::span<const Preference> preferences() noexcept { return kPreferences; }

bool prefers(Collective collective, int32_t ranks, size_t bytes) noexcept {
  const auto* const row = std::find_if(
      std::begin(kPreferences), std::end(kPreferences), [&](const Preference& preference) {
        return preference.collective == collective && ranks <= preference.ranks_most;
      });
  return row != std::end(kPreferences) && bytes <= row->bytes_most;
}

Wish parse_wish(std::string_view knob, std::string_view text) {
  if (text == "auto") return {};
  if (text == "nccl") return {Wish::Who::kVendor, Algorithm::kAutomatic};
  if (text == "kernels") return {Wish::Who::kKernels, Algorithm::kAutomatic};
  std::string allowed = "auto, nccl, kernels";
  for (size_t i = 1; i < kAlgorithmNames.size(); ++i) {
    if (text == kAlgorithmNames[i]) return {Wish::Who::kKernels, static_cast<Algorithm>(i)};
    allowed += (i + 1 < kAlgorithmNames.size() ? ", " : " or ") + std::string(kAlgorithmNames[i]);
  }
  throw CommError(Errc::kInvalidArgument, std::string(knob) + "='" + std::string(text) +
                                              "' is not allowed: expected " + allowed);
}

std::string_view name_of(Algorithm algorithm) noexcept {
  const auto index = static_cast<size_t>(algorithm);
  return index < kAlgorithmNames.size() ? kAlgorithmNames[index] : "unknown";
}

std::string_view name_of(Collective collective) noexcept {
  const auto index = static_cast<size_t>(collective);
  return index < std::size(kCollectiveNames) ? kCollectiveNames[index] : "unknown";
}

}  // namespace torch::comms::ctran
