#pragma once

#include <chrono>
#include <functional>

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"

namespace torch::comms::base {

struct TimerEntry;

// Frees `entry`. Afterwards its callback is not running and will not run. A callback may cancel
// itself, and runs on then.
// Blocks: while the callback is running, except on the timer thread.
TC_API void cancel_timer(TimerEntry* entry) noexcept;

// A callback that waits for its time. The destructor is cancel_timer(). A forked child destroys the
// handles of its parent without effect on either process.
using ScheduledCallback = UniqueHandle<TimerEntry*, cancel_timer, nullptr>;

// Runs `callback` once, at `when`, on the only timer thread of the process, unless the result is
// destroyed before. `callback` must not block or throw; it may destroy its own handle. No lock is
// held while it runs, and it is destroyed after it has run.
// Threads: any.
// Throws: std::system_error if the thread cannot be started.
[[nodiscard]] TC_API ScheduledCallback schedule(std::chrono::steady_clock::time_point when,
                                                std::function<void()> callback);

}  // namespace torch::comms::base
