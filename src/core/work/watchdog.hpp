#pragma once

#include <chrono>
#include <memory>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Something with deadlines that nobody may be waiting for.
class TC_API WatchdogClient {
 public:
  virtual ~WatchdogClient() = default;
  // Called by the watchdog every few milliseconds. Must not block.
  virtual void poll(std::chrono::steady_clock::time_point now) noexcept = 0;
  // False: not needed any more, until the next watch(). Must take no lock that is held around it.
  virtual bool is_active() noexcept = 0;
};

// Has the process's one watchdog look at `what`, which it keeps until is_active() says no. Does
// nothing for what it looks at already. The thread sleeps while there is nothing to look at. Any
// thread.
TC_API void add_to_watchdog(const std::shared_ptr<WatchdogClient>& what);

}  // namespace torch::comms
