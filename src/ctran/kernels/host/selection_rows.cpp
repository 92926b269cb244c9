#include "ctran/kernels/host/selection_rows.hpp"

#include <iterator>

#include "ctran/kernels/collectives/reducer_dispatch.hpp"

namespace torch::comms::ctran::kernels {
namespace {

constexpr std::string_view kAlgorithmNames[kAlgorithms] = {"automatic", "one_shot_ll",
                                                           "one_shot_line", "two_shot_line"};
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
constexpr std::string_view kKindNames[kKinds] = {"any", "float", "integer"};
constexpr std::string_view kModeNames[kModes] = {"any", "eager", "graph"};
constexpr std::string_view kMemoryNames[kMemories] = {"any", "plain", "registered"};

template <class T, size_t n>
std::string_view name_in(const std::string_view (&names)[n], T value) noexcept {
  const auto index = static_cast<size_t>(value);
  return index < n ? names[index] : "unknown";
}

}  // namespace

ElementKind element_kind_of(const KernelCall& call) noexcept {
  if (!is_reduction(call.collective)) return ElementKind::kAny;
  switch (call.dtype) {
    case Dtype::kUInt8:
    case Dtype::kInt8:
    case Dtype::kInt16:
    case Dtype::kInt32:
    case Dtype::kInt64:
    case Dtype::kBool:
    case Dtype::kUInt16:
    case Dtype::kUInt32:
    case Dtype::kUInt64:
      return ElementKind::kInteger;
    default:
      return ElementKind::kFloat;
  }
}

std::string_view name_of(KernelAlgorithm algorithm) noexcept {
  return name_in(kAlgorithmNames, algorithm);
}
std::string_view name_of(Collective collective) noexcept {
  return name_in(kCollectiveNames, collective);
}
std::string_view name_of(ElementKind kind) noexcept { return name_in(kKindNames, kind); }
std::string_view name_of(LaunchMode mode) noexcept { return name_in(kModeNames, mode); }
std::string_view name_of(TensorMemory memory) noexcept { return name_in(kMemoryNames, memory); }

}  // namespace torch::comms::ctran::kernels
