#pragma once

#include <cstdint>
#include <memory>

#include <torchcomms/base/export.hpp>

#include "base/handles.hpp"
#include "transport/request.hpp"

namespace torch::comms::ctran {

// Zeroed memory that the other processes of this host can map, once it is registered with a link.
class TC_API SharedBlock {
 public:
  // Throws CommError(kResourceExhausted, kSystem).
  explicit SharedBlock(uint64_t size);

  transport::Bytes bytes() const noexcept { return mapping_.bytes().first(size_); }

 private:
  base::FileDescriptor file_;
  base::Mapping mapping_;
  uint64_t size_;
};

}  // namespace torch::comms::ctran
