#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <torchcomms/options.hpp>

namespace torch::comms::nccl {

class LaunchQueue;

// An all_gather that was prepared: where it goes, and what was said of it then.
struct PersistentAllGather {
  at::Tensor output;
  OperationOptions options;
  std::weak_ptr<LaunchQueue> queue;  // those it was made with
  bool is_registered = false;        // with their library
};

}  // namespace torch::comms::nccl
