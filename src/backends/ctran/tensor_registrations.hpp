#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include <ATen/core/Tensor.h>

#include "core/comm/memory_range.hpp"

namespace torch::comms::ctran {

// The tensors that a program has registered with a communicator. The links of this backend move
// data from and to any memory, so that a registration alone keeps the memory alive, and counts: a
// tensor that is registered twice is deregistered twice. Any thread.
class TensorRegistrations {
 public:
  // Both throw CommError(kInvalidArgument) with `context`: for a tensor that is not one piece of
  // memory, remove() also for one that is not registered.
  void add(const at::Tensor& tensor, const Context& context);
  void remove(const at::Tensor& tensor, const Context& context);
  size_t size_bytes() const;

 private:
  struct TensorRegistration {
    c10::Storage memory;
    int count = 0;
  };
  mutable std::mutex mutex_;  // guards entries_
  std::map<MemoryRange, TensorRegistration> entries_;
};

}  // namespace torch::comms::ctran
