#pragma once

#include <chrono>
#include <memory>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Something with deadlines that nobody may be waiting for.
class TC_API Watched {
 public:
  virtual ~Watched() = default;
  // Called by the watchdog every few milliseconds, until it returns false. Must not block.
  virtual bool look(std::chrono::steady_clock::time_point now) noexcept = 0;
};

// Has the process's one watchdog look at `what`, which it keeps no longer than look() wants. Does
// nothing for what it looks at already. The thread sleeps while there is nothing to look at. Any
// thread.
TC_API void watch(const std::shared_ptr<Watched>& what);

}  // namespace torch::comms
