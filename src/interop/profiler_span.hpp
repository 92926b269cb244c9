#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/ATen_fwd.h>
#include <ATen/record_function.h>

#include <torchcomms/comm.hpp>

namespace torch::comms {

// A call of torch.distributed as PyTorch's profilers show it: "gloo:all_reduce" with its tensors,
// from the call to the end of the last operation that it issued. Costs one look-up where no
// profiler runs.
class ProfilerSpan {
 public:
  // `call` is the word of torch's own backends, which programs search for.
  ProfilerSpan(const TorchComm& comm, const char* call, at::TensorList tensors) {
    if (auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE))
      begin(std::move(*callbacks), comm, call, tensors);
  }

  // Ends it when all `works` have, on the thread that ends the last one; without this it ends here.
  void end_with(const std::vector<WorkPtr>& works) const {
    if (record_) end_recorded(works);
  }

 private:
  void begin(at::StepCallbacks callbacks, const TorchComm& comm, const char* call,
             at::TensorList tensors);
  void end_recorded(const std::vector<WorkPtr>& works) const;

  std::shared_ptr<at::RecordFunction> record_;  // null: nobody looks
};

}  // namespace torch::comms
