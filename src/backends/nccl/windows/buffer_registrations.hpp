#pragma once

#include <compare>
#include <cstddef>
#include <map>

#include <ATen/core/Tensor.h>

#include "vendor/communicator.hpp"

namespace torch::comms::nccl {

// The memory that is registered with the library (ncclCommRegister) before its use. It stays
// registered until it is deregistered as often as it was registered, or the communicator is
// destroyed.
//
// Threads: one at a time.
class BufferRegistrations {
 public:
  // Register and deregister the memory of a tensor, and keep its storage meanwhile.
  // Throws: CommError; kInvalidArgument for a tensor that is not contiguous or not registered.
  void add(Communicator& communicator, const at::Tensor& tensor, const WaitOptions& wait,
           const Context& context);
  void remove(Communicator& communicator, const at::Tensor& tensor, const WaitOptions& wait,
              const Context& context);
  // Register and deregister memory that the caller keeps alive. Removing an unknown range does
  // nothing.
  struct BufferAddressRange {
    void* begin;
    size_t size_bytes;
    auto operator<=>(const BufferAddressRange&) const = default;
  };
  void add(Communicator& communicator, const BufferAddressRange& range, const WaitOptions& wait);
  void remove(Communicator& communicator, const BufferAddressRange& range, const WaitOptions& wait);
  // Returns: the bytes that are registered now.
  size_t size_bytes() const noexcept;
  // Deregisters everything.
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
