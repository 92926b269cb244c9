#pragma once

#include <cstdint>
#include <string>

#include <torchcomms/base/export.hpp>

#include "base/handles.hpp"
#include "transport/request.hpp"

namespace torch::comms::ctran {

// Zeroed memory that the other processes of this host can map, once it is registered with a link.
// Where the system gives this process none, it is memory that its owner alone maps: links copy it.
class TC_API SharedBlock {
 public:
  // Throws CommError(kResourceExhausted).
  explicit SharedBlock(uint64_t size);

  transport::Bytes bytes() const noexcept { return mapping_.bytes().first(size_); }
  // Why no other process can map it; "" where one can.
  const std::string& why_private() const noexcept { return why_private_; }

 private:
  std::string why_private_;
  base::FileDescriptor file_;  // none: it is private
  base::Mapping mapping_;
  uint64_t size_;
};

}  // namespace torch::comms::ctran
