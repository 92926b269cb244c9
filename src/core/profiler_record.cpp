#include "core/profiler_record.hpp"

#include <memory>
#include <tuple>
#include <type_traits>
#include <vector>

#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <torchcomms/types.hpp>

namespace torch::comms {
namespace {

using Info = torch::ParamCommsDebugInfo;

// Newer PyTorch also takes whether the operation is asynchronous.
template <class... Args>
std::shared_ptr<Info> make_info(bool async_op, Args... args) {
  if constexpr (std::is_constructible_v<Info, Args..., bool>)
    return std::make_shared<Info>(std::move(args)..., async_op);
  else
    return std::make_shared<Info>(std::move(args)...);
}

}  // namespace

void ProfilerRecord::begin(at::StepCallbacks callbacks, const base::OpRecord& op,
                           const std::string& comm, int rank, int size) {
  const bool has_dtype = op.dtype != base::kNone;
  info_.emplace(
      c10::DebugInfoKind::PARAM_COMMS_INFO,
      make_info(op.async_op, std::tuple<std::string, std::string>(comm, ""),
                op.root_or_peer >= 0 ? op.root_or_peer : rank,
                std::string(opToString(static_cast<OpName>(op.kind))),
                static_cast<int64_t>(op.elements_in), static_cast<int64_t>(op.elements_out),
                has_dtype ? static_cast<at::ScalarType>(op.dtype) : at::kByte,
                std::vector<int64_t>{}, std::vector<int64_t>{}, 0, 1, size));
  record_.emplace(std::move(callbacks));
  const std::vector<c10::IValue> inputs = {static_cast<int64_t>(op.sequence), comm};
  if (record_->needsInputs())
    record_->before(at::kParamCommsCallName, &inputs, static_cast<int64_t>(op.sequence));
  else
    record_->before(at::kParamCommsCallName, static_cast<int64_t>(op.sequence));
}

}  // namespace torch::comms
