#pragma once

namespace gloo::transport {

class Device;

// Held by unique_ptr in ProcessGroupGloo's works.
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};

}  // namespace gloo::transport
