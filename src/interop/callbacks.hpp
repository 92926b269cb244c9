#pragma once

#include <chrono>
#include <functional>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Runs `body` soon on a thread for callbacks of futures. Such callbacks are the user's code: they
// may take Python's GIL, block, and wait for other futures. Therefore no callback waits for another
// one to end, and none runs on a thread that moves data. An exception of `body` is logged.
TC_API void run_callback(std::function<void()> body);

// Runs `body` as run_callback() does, but either before the process exits or never.
TC_API void run_callback_before_exit(std::function<void()> body);

// Waits until no callback of run_callback_before_exit() is running, or until `limit` has passed.
// Callbacks that would begin later never run, because the interpreter that they need is ending.
TC_API void close_callbacks(std::chrono::milliseconds limit);
TC_API bool are_callbacks_closed() noexcept;

// Sets a function that is called before each body, on the thread of the body. If callbacks can no
// longer run, `check` must not return. Call it once.
TC_API void set_callback_check(void (*check)()) noexcept;

}  // namespace torch::comms
