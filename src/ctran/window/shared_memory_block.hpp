#pragma once

#include <cstdint>
#include <string>

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"
#include "transport/protocol/request.hpp"

namespace torch::comms::ctran {

// Zeroed memory that other processes of this host can map once it is registered with a link. If the
// system provides no shared memory, the block is private memory of this process, and links copy it.
class TC_API SharedMemoryBlock {
 public:
  // Throws: CommError(kResourceExhausted, kSystem).
  explicit SharedMemoryBlock(uint64_t size);

  transport::Bytes bytes() const noexcept { return mapping_.bytes().first(size_); }
  // Returns: why no other process can map the block; "" if other processes can.
  const std::string& private_reason() const noexcept { return private_reason_; }

 private:
  std::string private_reason_;
  base::FileDescriptor file_;  // none: the memory is private
  base::Mapping mapping_;
  uint64_t size_;
};

}  // namespace torch::comms::ctran
