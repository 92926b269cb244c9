#pragma once

#include <memory>
#include <vector>

#include "transport/transport.hpp"

namespace torch::comms::ctran {

class Engine;

// The memory that links have registered for peers. It is released with the engine's lock, which the
// links require.
class WindowRegistrations {
 public:
  explicit WindowRegistrations(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  WindowRegistrations(WindowRegistrations&&) = default;
  WindowRegistrations& operator=(WindowRegistrations&&) = delete;
  ~WindowRegistrations() { clear(); }

  // Registers memory with a link. Requires the engine's lock.
  // Throws: CommError.
  const transport::MemoryHandle& add(transport::Transport& link, transport::Bytes bytes);
  // Releases all registrations. Takes the engine's lock.
  void clear() noexcept;

 private:
  std::shared_ptr<Engine> engine_;
  std::vector<std::unique_ptr<transport::MemoryRegion>> memories_;
};

}  // namespace torch::comms::ctran
