#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <torchcomms/options.hpp>

namespace torch::comms::nccl {

class LaunchQueue;

// An all_gather that was prepared: its output, and the options given at all_gather_p_init().
struct PersistentAllGather {
  at::Tensor output;
  OperationOptions options;
  std::weak_ptr<LaunchQueue> queue;  // the queue of the members it was created with
  bool is_registered = false;        // the output is registered with the library
};

}  // namespace torch::comms::nccl
