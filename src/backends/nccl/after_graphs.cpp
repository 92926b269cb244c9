#include "backends/nccl/after_graphs.hpp"

#include <mutex>
#include <utility>

#include "core/watchdog.hpp"

namespace torch::comms::nccl {
namespace {

// While a process ends, the runtime may be gone already.
struct Ending {
  std::mutex mutex;  // guards it; held while something is let go
  bool has_begun = false;
};
Ending& ending() {
  static auto* const state = new Ending;  // the watchdog outlives static destruction
  return *state;
}
struct AtExit {
  ~AtExit() {
    const std::lock_guard lock(ending().mutex);
    ending().has_begun = true;
  }
};

class Remainder final : public WatchdogClient {
 public:
  Remainder(std::unique_ptr<LaneGraphs> graphs, std::shared_ptr<const void> what)
      : graphs_(std::move(graphs)), what_(std::move(what)) {}
  void poll(std::chrono::steady_clock::time_point) noexcept override {
    const std::lock_guard lock(ending().mutex);
    if (ending().has_begun || !graphs_ || graphs_->any()) return;
    what_ = nullptr;
    graphs_ = nullptr;
  }
  bool is_active() noexcept override { return graphs_ != nullptr; }

 private:
  std::unique_ptr<LaneGraphs> graphs_;
  std::shared_ptr<const void> what_;
};

}  // namespace

void keep_for(std::unique_ptr<LaneGraphs> graphs, std::shared_ptr<const void> what) {
  // Made after the runtime, so ends before it.
  static const AtExit at_exit;
  add_to_watchdog(std::make_shared<Remainder>(std::move(graphs), std::move(what)));
}

}  // namespace torch::comms::nccl
