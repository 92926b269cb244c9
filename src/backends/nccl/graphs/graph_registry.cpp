#include "backends/nccl/graphs/graph_registry.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <torchcomms/base/error.hpp>

namespace torch::comms::nccl {

namespace {

void check(int code, const char* what) {
  if (code != gpu::kSuccess)
    throw CommError(Errc::kVendor, std::string(what) + ": error " + std::to_string(code));
}

}  // namespace

GraphRegistry::GraphRegistry(std::shared_ptr<NcclDevice> device)
    : device_(std::move(device)), marks_(gpu::graph_markers_of(device_->runtime())) {}

GraphRegistry::~GraphRegistry() = default;

void GraphRegistry::serialize_with_graphs() {
  if (marks_ != nullptr && !done_) done_ = device_->events().acquire();
}

std::shared_ptr<GraphRegistry::CapturedGraph> GraphRegistry::graph_of(gpu::NativeStream stream,
                                                                      gpu::CaptureId capture,
                                                                      const StreamMarker& last) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find(graphs_, capture, [](const auto& graph) { return graph->id; });
  if (found != graphs_.end()) {
    make_serialized(**found, stream, last);
    return *found;
  }
  remove_destroyed();
  auto graph = std::make_shared<CapturedGraph>(CapturedGraph{capture, ++count_});
  if (marks_ != nullptr) {
    auto lifetime = std::make_shared<gpu::GraphLifetime>();
    gpu::retain_with_graph(*marks_, stream, lifetime);
    graph->lifetime = std::move(lifetime);
  } else {
    graphs_.clear();  // the newest graph stands for all of them
  }
  make_serialized(*graph, stream, last);
  graphs_.push_back(graph);
  return graph;
}

void GraphRegistry::make_serialized(CapturedGraph& graph, gpu::NativeStream stream,
                                    const StreamMarker& last) {
  if (!done_ || std::exchange(graph.is_serialized, true)) return;
  const auto& runtime = device_->runtime();
  if (!std::exchange(may_have_recorded_, true) && last.end) {
    // Calls have not recorded done_ since.
    const gpu::CaptureModeGuard mode(runtime);
    runtime.wait(device_->own_stream(), last.end.get());
    runtime.record(done_.get(), device_->own_stream());
  }
  check(marks_->wait(stream, done_.get()),
        "cannot order the CUDA graph being captured after earlier launches");
}

void GraphRegistry::after_captured_launch(CapturedGraph& graph, gpu::NativeStream stream) {
  if (done_)
    check(marks_->record(stream, done_.get(), &graph.done),
          "cannot record the end of the CUDA graph being captured");
}

void GraphRegistry::before_eager_launch(gpu::NativeStream stream) {
  if (may_have_recorded_) device_->runtime().wait(stream, done_.get());
}

void GraphRegistry::after_eager_launch(gpu::NativeStream stream) {
  if (!may_have_recorded_) return;
  if (has_live())
    device_->runtime().record(done_.get(), stream);
  else
    may_have_recorded_ =
        false;  // a destroyed graph may still be running, but this call waited for it
}

bool GraphRegistry::has_live(const GraphRange& range) noexcept {
  const std::lock_guard lock(mutex_);
  if (!graphs_.empty()) remove_destroyed();
  // A graph whose end is not reported stands for the graphs before it, too.
  return std::ranges::any_of(graphs_, [&](const auto& graph) {
    return graph->number > range.after && (graph->number <= range.up_to || !graph->lifetime);
  });
}

uint64_t GraphRegistry::count() noexcept {
  const std::lock_guard lock(mutex_);
  return count_;
}

void GraphRegistry::remove_destroyed() noexcept {
  const gpu::CaptureModeGuard mode(device_->runtime());
  std::erase_if(graphs_,
                [](const auto& graph) { return graph->lifetime && graph->lifetime->is_destroyed; });
}

}  // namespace torch::comms::nccl
