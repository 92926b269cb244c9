#pragma once

#include <memory>
#include <vector>

#include "transport/transport.hpp"

namespace torch::comms::ctran {

class Engine;

// Memory that links have opened to peers, given back with the engine's lock, which its links need.
class WindowRegistrations {
 public:
  explicit WindowRegistrations(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  WindowRegistrations(WindowRegistrations&&) = default;
  WindowRegistrations& operator=(WindowRegistrations&&) = delete;
  ~WindowRegistrations() { clear(); }

  // With the lock held. Throws CommError.
  const transport::MemoryHandle& add(transport::Transport& link, transport::Bytes bytes);
  // Without it.
  void clear() noexcept;

 private:
  std::shared_ptr<Engine> engine_;
  std::vector<std::unique_ptr<transport::MemoryRegion>> memories_;
};

// Holds the engine's lock.
class EngineLock {
 public:
  explicit EngineLock(Engine& engine) noexcept;
  ~EngineLock();
  EngineLock(const EngineLock&) = delete;
  EngineLock& operator=(const EngineLock&) = delete;

 private:
  Engine& engine_;
};

}  // namespace torch::comms::ctran
