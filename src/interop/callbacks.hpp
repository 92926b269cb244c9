#pragma once

#include <chrono>
#include <functional>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Runs `body` on a thread of its own kind, soon. For completions of futures: their callbacks are
// the program's, which may take Python's lock, block, and wait for other futures; so none waits for
// another to end, and none runs on a thread that moves data. Idle threads are kept for a second.
// What `body` throws is logged.
TC_API void run_callback(std::function<void()> body);

// The same, for one that is run before the program ends, or not at all.
TC_API void run_callback_before_exit(std::function<void()> body);

// Waits until none of those is under way any more, or the limit has passed. Those that would begin
// later never do: what they want of the program's language goes.
TC_API void close_callbacks(std::chrono::milliseconds limit);
TC_API bool are_callbacks_closed() noexcept;

// `check` is called before each body, on the thread of its own. For whoever knows that programs'
// callbacks can run no more: then it does not return. Once.
TC_API void set_callback_check(void (*check)()) noexcept;

}  // namespace torch::comms
