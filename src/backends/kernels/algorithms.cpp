#include <utility>

#include "backends/kernels/kernels_backend.hpp"
#include "backends/kernels/team_kernels.hpp"
#include "ctran/device/selection.hpp"

// What kernels run, for describe().
namespace torch::comms {

using ctran::kernels::Call;
using ctran::kernels::Collective;

namespace {

// The largest size that algorithms() tells of.
constexpr int64_t kMostBytes = int64_t{1} << 32;
// How many bytes of the largest buffer are one element of a Call's count.
size_t parts_of(Collective collective, int size) {
  const bool one = collective == Collective::kAllReduce || collective == Collective::kReduce ||
                   collective == Collective::kBroadcast || collective == Collective::kBarrier;
  return one ? 1 : static_cast<size_t>(size);
}

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
    case Collective::kCountedExchange:
    case Collective::kQuantizedReduceScatter:
      break;
  }
  return OpName::barrier;
}

}  // namespace

std::vector<TorchCommBackend::AlgorithmRange> TorchCommKernels::algorithms() const {
  std::vector<AlgorithmRange> ranges;
  if (!isInitialized()) return ranges;
  for (auto collective = Collective::kAllReduce; collective <= Collective::kBarrier;
       collective = static_cast<Collective>(static_cast<int>(collective) + 1)) {
    if (collective == Collective::kScatter) continue;  // its tensors are in a list
    Call call{};
    call.collective = collective;
    call.dtype = ctran::Dtype::kFloat32;
    const auto count_bytes = sizeof(float) * parts_of(collective, getSize());
    std::string before;
    for (int64_t bytes = 0; bytes <= kMostBytes; bytes = bytes == 0 ? 1 : 2 * bytes) {
      call.count = static_cast<size_t>(bytes) / count_bytes;
      auto [who, why] = otherwise(collective);
      auto asked = call;
      if (kernels_ && is_taken(operation_of(collective), asked, static_cast<size_t>(bytes), {}))
        who = ctran::name_of(asked.algorithm == ctran::kernels::Algorithm::kAutomatic
                                 ? kernels_->team().choice(asked)
                                 : asked.algorithm);
      if (std::exchange(before, who) == who) continue;
      ranges.push_back({operation_of(collective), bytes, std::move(who), 0, std::move(why)});
      if (collective == Collective::kBarrier) break;
    }
  }
  return ranges;
}

}  // namespace torch::comms
