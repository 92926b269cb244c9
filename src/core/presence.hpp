#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Which threads are inside of a communicator's calls: finalize() takes nothing away from under
// them. Any thread.
class TC_API Presence {
 public:
  // A call, from its beginning to its end. Calls nest, since hooks may make some.
  class TC_API Here {
   public:
    explicit Here(Presence& presence) noexcept;
    ~Here();
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;

   private:
    friend Presence;
    Presence& presence_;
    const Here* const outer_;  // of this thread, of whichever communicator
  };

  // Returns true when no other thread is inside. Whoever comes after this began must turn back by
  // himself. `check` runs now and then, and may throw. False: some thread still is a second after
  // `ends` has become true, as host_ends(), and may be for ever.
  [[nodiscard]] bool await_others(const std::function<void()>& check,
                                  const std::function<bool()>& ends);

 private:
  int of_this_thread() const noexcept;

  std::atomic<int> inside_{0};
  std::atomic<bool> is_awaited_{false};
  std::mutex mutex_;  // partner of left_
  std::condition_variable left_;
};

}  // namespace torch::comms
