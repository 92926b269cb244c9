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

// What a profiler shows of an operation, in the terms of torch.distributed's own records.
struct ProfiledOperation {
  std::string name;
  std::string comm;
  std::string backend;
  int rank = 0;            // the root or peer; otherwise the own rank
  int size = 0;            // of the communicator
  std::vector<int> ranks;  // its members; empty means 0 to size - 1
  int64_t sequence = 0;
  bool is_message = false;  // a message between two ranks
  bool async_op = false;
  uint64_t elements_in = 0;
  uint64_t elements_out = 0;
  at::ScalarType dtype = at::kByte;
  std::vector<int64_t> input_splits;
  std::vector<int64_t> output_splits;
  Tensors input;
  Tensors output;
};

// Returns: the fields that follow from the operation itself; the caller fills in communicator and
// ranks.
template <class Op>
ProfiledOperation profiled_operation(const Op& op, const base::OpRecord& record);

// Shows an operation to PyTorch's profiler while the object lives, as torch.distributed does: a
// "record_param_comms" with name, group, type, sizes and tensors. It hides torch calls that the
// backend makes meanwhile. Without a profiler it costs one look-up, and `describe` is not called.
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
  std::optional<at::RecordFunction> record_;  // destroyed before info_, which its end may read
  std::optional<at::RecordFunctionGuard> nested_records_off_;
};

}  // namespace torch::comms
