#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torchcomms/operation.hpp>

#include "base/op_record.hpp"

namespace torch::comms {

// What a profiler shows of an operation, in the words of torch.distributed's own records.
struct ProfiledOperation {
  std::string name;
  std::string comm;
  std::string backend;
  int rank = 0;            // the root or peer; else the own one
  int size = 0;            // of the communicator
  std::vector<int> ranks;  // its members; empty: 0 to size - 1
  int64_t sequence = 0;
  bool is_message = false;  // between two ranks
  bool async_op = false;
  uint64_t elements_in = 0;
  uint64_t elements_out = 0;
  at::ScalarType dtype = at::kByte;
  std::vector<int64_t> input_splits;
  std::vector<int64_t> output_splits;
  Tensors input;
  Tensors output;
};

// The part that an operation knows of itself; communicator and ranks are the caller's to fill.
template <class Op>
ProfiledOperation profiled_operation(const Op& op, const base::OpRecord& record);

// Shows an operation to PyTorch's profiler while it lives, as torch.distributed shows its own: a
// "record_param_comms" with name, group, type, sizes and tensors, and nothing of what the backend
// calls in torch to do it. Costs one look-up where no profiler runs: then `describe` is not called.
class ProfilerRecord {
 public:
  template <class Describe>
  explicit ProfilerRecord(const Describe& describe) {
    if (auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION))
      begin(std::move(*callbacks), describe());
  }
  ProfilerRecord(const ProfilerRecord&) = delete;
  ProfilerRecord& operator=(const ProfilerRecord&) = delete;

 private:
  void begin(at::StepCallbacks callbacks, const ProfiledOperation& shown);

  std::optional<c10::DebugInfoGuard> info_;
  std::optional<at::RecordFunction> record_;  // ends before info_, which its end may look at
  std::optional<at::RecordFunctionGuard> nested_records_off_;
};

}  // namespace torch::comms
