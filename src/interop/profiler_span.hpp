#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/ATen_fwd.h>
#include <ATen/record_function.h>

#include <torchcomms/comm.hpp>

namespace torch::comms {

// Shows one call of torch.distributed in PyTorch's profilers: "gloo:all_reduce" with its tensors,
// from the call to the end of the last operation that it issued. Costs one lookup if no profiler
// runs.
class ProfilerSpan {
 public:
  // `call` is the name that torch's own backends use, because programs search for it.
  ProfilerSpan(const TorchComm& comm, const char* call, at::TensorList tensors) {
    if (auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE))
      begin(std::move(*callbacks), comm, call, tensors);
  }

  // Ends the span when all `works` have completed, on the thread that completes the last one.
  // Without this call the span ends with the object.
  void end_with(const std::vector<WorkPtr>& works) const {
    if (record_) end_recorded(works);
  }

 private:
  void begin(at::StepCallbacks callbacks, const TorchComm& comm, const char* call,
             at::TensorList tensors);
  void end_recorded(const std::vector<WorkPtr>& works) const;

  std::shared_ptr<at::RecordFunction> record_;  // null if no profiler runs
};

}  // namespace torch::comms
