#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Which threads are inside of a communicator's calls: finalize() takes nothing away from under
// them. Any thread.
class TC_API ActiveCalls {
 public:
  // A call, from its beginning to its end. Calls nest, since hooks may make some.
  class TC_API CallScope {
   public:
    explicit CallScope(ActiveCalls& presence) noexcept;
    ~CallScope();
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

   private:
    friend ActiveCalls;
    ActiveCalls& calls_;
    const CallScope* const outer_;  // of this thread, of whichever communicator
  };

  // Returns true when no other thread is inside. Whoever comes after this began must turn back by
  // himself. `check` runs now and then, and may throw. False: some thread still is a second after
  // `ends` has become true, as interpreter_is_exiting(), and may be for ever.
  [[nodiscard]] bool wait_until_idle(const std::function<void()>& check,
                                     const std::function<bool()>& ends);

 private:
  int count_of_this_thread() const noexcept;

  std::atomic<int> active_{0};
  std::atomic<bool> has_waiter_{false};
  std::mutex mutex_;  // partner of left_
  std::condition_variable call_ended_;
};

}  // namespace torch::comms
