#pragma once

#include <cstdint>
#include <string>

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"
#include "transport/protocol/request.hpp"

namespace torch::comms::ctran {

// Zeroed memory that the other processes of this host can map, once it is registered with a link.
// Where the system gives this process none, it is memory that its owner alone maps: links copy it.
class TC_API SharedMemoryBlock {
 public:
  // Throws CommError(kResourceExhausted).
  explicit SharedMemoryBlock(uint64_t size);

  transport::Bytes bytes() const noexcept { return mapping_.bytes().first(size_); }
  // Why no other process can map it; "" where one can.
  const std::string& private_reason() const noexcept { return private_reason_; }

 private:
  std::string private_reason_;
  base::FileDescriptor file_;  // none: it is private
  base::Mapping mapping_;
  uint64_t size_;
};

}  // namespace torch::comms::ctran
