#include <utility>

#include "backends/device_kernels/kernel_backend.hpp"
#include "backends/device_kernels/team_kernels.hpp"
#include "ctran/team/kernel_selection.hpp"

// KernelBackend::algorithms(): which sizes kernels run, for describe().
namespace torch::comms {

using ctran::kernels::Collective;
using ctran::kernels::KernelCall;

namespace {

// The largest size that algorithms() reports.
constexpr int64_t kMostBytes = int64_t{1} << 32;
OpName operation_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return OpName::all_reduce;
    case Collective::kAllGather:
      return OpName::all_gather_single;
    case Collective::kReduceScatter:
      return OpName::reduce_scatter_single;
    case Collective::kAllToAll:
      return OpName::all_to_all_single;
    case Collective::kBroadcast:
      return OpName::broadcast;
    case Collective::kReduce:
      return OpName::reduce;
    case Collective::kGather:
      return OpName::gather_single;
    case Collective::kScatter:
      return OpName::scatter;
    case Collective::kBarrier:
    case Collective::kExchange:
    case Collective::kSignal:
    case Collective::kWaitSignal:
    case Collective::kAllToAllVDynamic:
    case Collective::kQuantizedReduceScatter:
      break;
  }
  return OpName::barrier;
}

}  // namespace

std::vector<TorchCommBackend::AlgorithmRange> KernelBackend::algorithms() const {
  using ctran::kernels::LaunchMode;
  std::vector<AlgorithmRange> ranges;
  if (!isInitialized()) return ranges;
  for (auto collective = Collective::kAllReduce; collective <= Collective::kBarrier;
       collective = static_cast<Collective>(static_cast<int>(collective) + 1)) {
    if (collective == Collective::kScatter) continue;  // scatter takes a list of tensors
    if (!tuning_rows_.has_modes(collective)) {
      add_ranges(ranges, collective, LaunchMode::kAny);
      continue;
    }
    for (const auto mode : {LaunchMode::kEager, LaunchMode::kGraph})
      add_ranges(ranges, collective, mode);
  }
  return ranges;
}

void KernelBackend::add_ranges(std::vector<AlgorithmRange>& ranges, Collective collective,
                               ctran::kernels::LaunchMode mode) const {
  using ctran::kernels::KernelAlgorithm;
  KernelCall call{};
  call.collective = collective;
  call.dtype = ctran::Dtype::kFloat32;
  const auto op = operation_of(collective);
  const auto count_bytes = sizeof(float) * ctran::kernels::parts_of(collective, getSize());
  std::string previous;
  for (int64_t bytes = 0; bytes <= kMostBytes; bytes = bytes == 0 ? 1 : 2 * bytes) {
    call.count = static_cast<size_t>(bytes) / count_bytes;
    auto [algorithm, why] = fallback_for(collective);
    auto candidate = call;
    if (kernels_) {
      const auto choice = choose(candidate, {op, static_cast<size_t>(bytes), mode, {}});
      if (choice.use_kernels)
        algorithm = name_of(candidate.algorithm == KernelAlgorithm::kAutomatic
                                ? kernels_->team().choose_algorithm(candidate, candidate.blocks)
                                : candidate.algorithm);
      if (choice.is_measured) why = "tuning file";
    }
    if (mode != ctran::kernels::LaunchMode::kAny) why += ", " + std::string(name_of(mode));
    if (std::exchange(previous, algorithm + why) == algorithm + why) continue;
    ranges.push_back({op, bytes, std::move(algorithm), 0, std::move(why)});
    if (collective == Collective::kBarrier) break;
  }
}

}  // namespace torch::comms
