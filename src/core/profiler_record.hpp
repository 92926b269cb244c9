#pragma once

#include <optional>
#include <string>

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "base/op_record.hpp"

namespace torch::comms {

// Shows an operation to PyTorch's profiler while it lives, as torch.distributed shows its own: a
// "record_param_comms" with name, group, type and sizes. Costs one look-up where no profiler runs.
class ProfilerRecord {
 public:
  ProfilerRecord(const base::OpRecord& op, const std::string& comm, int rank, int size) {
    if (auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION))
      begin(std::move(*callbacks), op, comm, rank, size);
  }
  ProfilerRecord(const ProfilerRecord&) = delete;
  ProfilerRecord& operator=(const ProfilerRecord&) = delete;

 private:
  void begin(at::StepCallbacks callbacks, const base::OpRecord& op, const std::string& comm,
             int rank, int size);

  std::optional<c10::DebugInfoGuard> info_;
  std::optional<at::RecordFunction> record_;  // ends first: its end may look at info_
};

}  // namespace torch::comms
