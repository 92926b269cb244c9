#include "core/work/deferred_teardown.hpp"

#include <chrono>
#include <utility>

#include "base/concurrency/executor.hpp"

namespace torch::comms {
namespace {

constexpr std::chrono::seconds kTeardownTimeout{1};

// Messages that a program has sent without a wait() should arrive although the program exits, so
// process exit waits for teardowns.
base::TaskGroup teardowns(kTeardownTimeout);

}  // namespace

void teardown_async(std::shared_ptr<InFlightCounter> flight, std::function<void()> end,
                    bool may_block, std::function<void()> begin) {
  if (may_block && flight->is_idle()) return end();
  teardowns.run([flight = std::move(flight), end = std::move(end), begin = std::move(begin)] {
    if (begin) begin();
    flight->wait_idle();
    end();
  });
}

void wait_for_teardowns(int most) { teardowns.wait_for(most, kTeardownTimeout); }

}  // namespace torch::comms
