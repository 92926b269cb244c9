#pragma once

#include <compare>
#include <cstddef>
#include <map>

#include <ATen/core/Tensor.h>

#include "vendor/communicator.hpp"

namespace torch::comms::nccl {

// Memory that the library was told of ahead of its use, which stays until it is taken back, or the
// communicator is gone. Registered twice it is taken back twice. One thread at a time.
class BufferRegistrations {
 public:
  // Throw CommError; kInvalidArgument for a tensor that is not in one piece, or not registered.
  void add(Communicator& communicator, const at::Tensor& tensor, const WaitOptions& wait,
           const Context& context);
  void remove(Communicator& communicator, const at::Tensor& tensor, const WaitOptions& wait,
              const Context& context);
  // The same of memory that somebody else keeps, and says when it goes. kInvalidArgument never.
  struct BufferAddressRange {
    void* begin;
    size_t size_bytes;
    auto operator<=>(const BufferAddressRange&) const = default;
  };
  void add(Communicator& communicator, const BufferAddressRange& range, const WaitOptions& wait);
  void remove(Communicator& communicator, const BufferAddressRange& range, const WaitOptions& wait);
  // Of what is registered now.
  size_t size_bytes() const noexcept;
  // Takes all of it back.
  void clear(Communicator& communicator, const WaitOptions& wait);

 private:
  struct BufferRegistration {
    c10::Storage memory;
    void* registration;
    int count;
  };
  void add(Communicator& communicator, const BufferAddressRange& range, c10::Storage memory,
           const WaitOptions& wait);

  std::map<BufferAddressRange, BufferRegistration> entries_;
};

}  // namespace torch::comms::nccl
