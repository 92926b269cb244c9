#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include <ATen/core/Tensor.h>

#include "core/comm/memory_range.hpp"

namespace torch::comms::ctran {

// The tensors that the caller has registered with a communicator. The links of this backend move
// data from and to any memory, so a registration only keeps the memory alive. Registrations are
// counted: a tensor that is registered twice must be deregistered twice.
// Threads: any.
class TensorRegistrations {
 public:
  // Throws: CommError(kInvalidArgument) with `context` for a tensor that is not one contiguous
  // piece of memory; remove() also for a tensor that is not registered.
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
