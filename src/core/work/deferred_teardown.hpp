#pragma once

#include <functional>
#include <memory>

#include <torchcomms/base/export.hpp>

#include "core/work/inflight_counter.hpp"

namespace torch::comms {

// Runs `end`, which stops a communicator's threads and closes its connections, without blocking the
// caller. `end` runs at once if `may_block` is set and nothing is in flight. Otherwise a thread of
// its own runs `begin`, waits until nothing is in flight, and runs `end`. At process exit such
// threads get one second.
TC_API void teardown_async(std::shared_ptr<InFlightCounter> flight, std::function<void()> end,
                           bool may_block, std::function<void()> begin = nullptr);

// Waits while more than `most` communicators are still in teardown.
// Blocks: at most one second.
TC_API void wait_for_teardowns(int most = 16);

}  // namespace torch::comms
