#pragma once

#include <cstddef>
#include <map>
#include <utility>

#include <ATen/core/Tensor.h>

#include "nccl/communicator.hpp"

namespace torch::comms::nccl {

// Memory that the library was told of ahead of its use, which stays until it is taken back, or the
// communicator is gone. Registered twice it is taken back twice. One thread at a time.
class Registrations {
 public:
  // Throw CommError; kInvalidArgument for a tensor that is not in one piece, or not registered.
  void add(Communicator& communicator, const at::Tensor& tensor, const Wait& wait,
           const Context& context);
  void remove(Communicator& communicator, const at::Tensor& tensor, const Wait& wait,
              const Context& context);
  // Of what is registered now.
  size_t size_bytes() const noexcept;
  // Takes all of it back.
  void clear(Communicator& communicator, const Wait& wait);

 private:
  struct Entry {
    c10::Storage memory;
    void* registration;
    int count;
  };
  using Range = std::pair<void*, size_t>;
  std::map<Range, Entry> entries_;
};

}  // namespace torch::comms::nccl
