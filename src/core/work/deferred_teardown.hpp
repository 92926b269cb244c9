#pragma once

#include <functional>
#include <memory>

#include <torchcomms/base/export.hpp>

#include "core/work/inflight_counter.hpp"

namespace torch::comms {

// Runs `end`, which takes a communicator's threads and connections apart, without ever blocking the
// caller: at once where `may_block` and nothing is in flight, else on a thread of its own when what
// is in flight has ended. At the end of the process such threads get a second. `begin`: what that
// thread does before it waits.
TC_API void teardown_async(std::shared_ptr<InFlightCounter> flight, std::function<void()> end,
                           bool may_block, std::function<void()> begin = nullptr);

// Waits, a second at most, while more communicators than that are still ending. For callers that
// may block.
TC_API void wait_for_teardowns(int most = 16);

}  // namespace torch::comms
