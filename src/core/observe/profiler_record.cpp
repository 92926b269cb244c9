#include "core/observe/profiler_record.hpp"

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <torchcomms/types.hpp>

#include "core/comm/each_operation.hpp"

namespace torch::comms {
namespace {

using Info = torch::ParamCommsDebugInfo;

// Newer versions of PyTorch also take the async flag and the sequence number.
template <class... Args>
std::shared_ptr<Info> make_info(bool async_op, int64_t sequence, bool is_message, Args... args) {
  std::shared_ptr<Info> info;
  if constexpr (std::is_constructible_v<Info, Args..., bool>)
    info = std::make_shared<Info>(std::move(args)..., async_op);
  else
    info = std::make_shared<Info>(std::move(args)...);
  [&](auto& debug_info) {
    if constexpr (requires { debug_info.setSequenceInfo(sequence, is_message); })
      debug_info.setSequenceInfo(sequence, is_message);
  }(*info);
  return info;
}

// The record has no list of ranks, but their start and stride. Other sets of ranks are shown as
// ranks in the communicator.
std::pair<int, int> start_and_stride(const std::vector<int>& ranks) {
  const std::pair own_numbers{0, 1};
  if (ranks.empty()) return own_numbers;
  const int stride = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  for (size_t i = 1; i < ranks.size(); ++i)
    if (stride < 1 || ranks[i] - ranks[i - 1] != stride) return own_numbers;
  return {ranks.front(), stride};
}

Tensors list(const at::Tensor& tensor) { return tensor.defined() ? Tensors{tensor} : Tensors{}; }
Tensors list(const Tensors& tensors) { return tensors; }

}  // namespace

template <class Op>
ProfiledOperation profiled_operation(const Op& op, const base::OpRecord& record) {
  ProfiledOperation shown;
  shown.name = opToString(Op::kName);
  shown.rank = record.root_or_peer;
  shown.sequence = static_cast<int64_t>(record.sequence);
  shown.async_op = record.async_op;
  shown.elements_in = record.elements_in;
  shown.elements_out = record.elements_out;
  if (record.dtype != base::kNone) shown.dtype = static_cast<at::ScalarType>(record.dtype);
  shown.is_message = requires { op.peer; } || requires { op.ops; };
  if constexpr (requires { op.tensor; }) {
    if (Op::kName != OpName::recv) shown.input = list(op.tensor);
    if (Op::kName != OpName::send) shown.output = list(op.tensor);
  }
  if constexpr (requires { op.input; }) {
    shown.input = list(op.input);
    shown.output = list(op.output);
  }
  if constexpr (requires { op.input_split_sizes; }) {
    shown.input_splits.assign(op.input_split_sizes.begin(), op.input_split_sizes.end());
    shown.output_splits.assign(op.output_split_sizes.begin(), op.output_split_sizes.end());
  }
  if constexpr (requires { op.ops; })
    for (const auto& entry : op.ops)
      (entry.type == P2POpType::SEND ? shown.input : shown.output).push_back(entry.tensor);
  return shown;
}

void ProfilerRecord::begin(at::StepCallbacks callbacks, const ProfiledOperation& shown) {
  const auto [start, stride] = start_and_stride(shown.ranks);
  const std::tuple<std::string, std::string> group(shown.comm, shown.backend);
  info_.emplace(c10::DebugInfoKind::PARAM_COMMS_INFO,
                make_info(shown.async_op, shown.sequence, shown.is_message, group, shown.rank,
                          std::string(shown.name), static_cast<int64_t>(shown.elements_in),
                          static_cast<int64_t>(shown.elements_out), shown.dtype, shown.input_splits,
                          shown.output_splits, start, stride, shown.size));
  record_.emplace(std::move(callbacks));
  const std::tuple<int64_t, bool> number(shown.sequence, shown.is_message);
  if (record_->needsInputs()) {
    const std::vector<c10::IValue> inputs = {
        shown.input,         number, group,  shown.rank, shown.name,    shown.input_splits,
        shown.output_splits, start,  stride, shown.size, shown.async_op};
    record_->before(at::kParamCommsCallName, &inputs, shown.sequence);
  } else {
    record_->before(at::kParamCommsCallName, shown.sequence);
  }
  if (record_->needsOutputs()) record_->setOutputs(std::vector<c10::IValue>{shown.output});
  nested_records_off_.emplace(/*is_enabled=*/false);
}

#define TC_INSTANTIATE(Op) \
  template ProfiledOperation profiled_operation(const Op&, const base::OpRecord&);
TC_FOR_EACH_OPERATION(TC_INSTANTIATE)
#undef TC_INSTANTIATE

}  // namespace torch::comms
