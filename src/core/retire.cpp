#include "core/retire.hpp"

#include <chrono>
#include <utility>

#include "base/awaited_threads.hpp"

namespace torch::comms {
namespace {

constexpr std::chrono::seconds kTeardownLimit{1};

// Communicators that end. Messages that a program has sent and not waited for should arrive
// although it ends now.
base::AwaitedThreads retiring(kTeardownLimit);

}  // namespace

void retire(std::shared_ptr<Flight> flight, std::function<void()> end, bool may_block,
            std::function<void()> begin) {
  if (may_block && flight->idle()) return end();
  retiring.run([flight = std::move(flight), end = std::move(end), begin = std::move(begin)] {
    if (begin) begin();
    flight->wait_idle();
    end();
  });
}

void await_retired(int most) { retiring.wait_for(most, kTeardownLimit); }

}  // namespace torch::comms
