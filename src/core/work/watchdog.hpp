#pragma once

#include <chrono>
#include <memory>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// An object with deadlines that no thread may be waiting for.
class TC_API WatchdogClient {
 public:
  virtual ~WatchdogClient() = default;
  // The watchdog calls it every few milliseconds. It must not block.
  virtual void poll(std::chrono::steady_clock::time_point now) noexcept = 0;
  // Returns: false if the watchdog may drop the object until the next add_to_watchdog(). It must
  // not take a lock that is held around add_to_watchdog().
  virtual bool is_active() noexcept = 0;
};

// Adds `client` to the watchdog of the process, which keeps it until is_active() returns false. It
// does nothing if the object is present already. The watchdog has a thread from its first client
// on. A forked child does not poll the clients of its parent.
// Threads: any.
// Throws: std::system_error if no thread can be started for the first client of the process.
TC_API void add_to_watchdog(const std::shared_ptr<WatchdogClient>& client);

}  // namespace torch::comms
