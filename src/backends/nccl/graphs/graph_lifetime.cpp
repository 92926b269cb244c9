#include "backends/nccl/graphs/graph_lifetime.hpp"

#include <mutex>
#include <utility>

#include "core/work/watchdog.hpp"

namespace torch::comms::nccl {
namespace {

// During process exit the runtime may have been destroyed already.
struct ProcessExitState {
  std::mutex mutex;  // guards this struct; held while a GraphRetainer releases
  bool has_begun = false;
};
ProcessExitState& process_exit_state() {
  static auto* const state = new ProcessExitState;  // the watchdog outlives static destruction
  return *state;
}
struct GraphExitMarker {
  ~GraphExitMarker() {
    const std::lock_guard lock(process_exit_state().mutex);
    process_exit_state().has_begun = true;
  }
};

class GraphRetainer final : public WatchdogClient {
 public:
  GraphRetainer(std::unique_ptr<GraphRegistry> graphs, std::shared_ptr<const void> what)
      : graphs_(std::move(graphs)), retained_(std::move(what)) {}
  void poll(std::chrono::steady_clock::time_point) noexcept override {
    const std::lock_guard lock(process_exit_state().mutex);
    if (process_exit_state().has_begun || !graphs_ || graphs_->has_live()) return;
    retained_ = nullptr;
    graphs_ = nullptr;
  }
  bool is_active() noexcept override { return graphs_ != nullptr; }

 private:
  std::unique_ptr<GraphRegistry> graphs_;
  std::shared_ptr<const void> retained_;
};

}  // namespace

void retain_until_graphs_end(std::unique_ptr<GraphRegistry> graphs,
                             std::shared_ptr<const void> what) {
  // Constructed after the runtime, so destroyed before it.
  static const GraphExitMarker at_exit;
  add_to_watchdog(std::make_shared<GraphRetainer>(std::move(graphs), std::move(what)));
}

}  // namespace torch::comms::nccl
