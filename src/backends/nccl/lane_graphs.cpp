#include "backends/nccl/lane_graphs.hpp"

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

LaneGraphs::LaneGraphs(std::shared_ptr<Device> device)
    : device_(std::move(device)), marks_(gpu::graph_markers_of(device_->runtime())) {}

LaneGraphs::~LaneGraphs() = default;

void LaneGraphs::keep_apart() {
  if (marks_ != nullptr && !done_) done_ = device_->events().acquire();
}

std::shared_ptr<LaneGraphs::Graph> LaneGraphs::graph_of(gpu::NativeStream stream,
                                                        gpu::CaptureId capture, const Mark& last) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find(graphs_, capture, [](const auto& graph) { return graph->id; });
  if (found != graphs_.end()) {
    set_apart(**found, stream, last);
    return *found;
  }
  forget_those_gone();
  auto made = std::make_shared<Graph>(Graph{capture, ++count_});
  if (marks_ != nullptr) {
    auto life = std::make_shared<gpu::GraphLifetime>();
    gpu::retain_with_graph(*marks_, stream, life);
    made->life = std::move(life);
  } else {
    graphs_.clear();  // one of them, the newest, says that there are some
  }
  set_apart(*made, stream, last);
  graphs_.push_back(made);
  return made;
}

void LaneGraphs::set_apart(Graph& graph, gpu::NativeStream stream, const Mark& last) {
  if (!done_ || std::exchange(graph.is_apart, true)) return;
  const auto& runtime = device_->runtime();
  if (!std::exchange(is_open_, true) && last.end) {
    // Calls have not recorded it since.
    const gpu::CaptureModeGuard mode(runtime);
    runtime.wait(device_->own_stream(), last.end.get());
    runtime.record(done_.get(), device_->own_stream());
  }
  check(marks_->wait(stream, done_.get()), "a graph does not wait for what is launched before");
}

void LaneGraphs::end(Graph& graph, gpu::NativeStream stream) {
  if (done_)
    check(marks_->record(stream, done_.get(), &graph.done),
          "a graph does not tell when it is done");
}

void LaneGraphs::begin_call(gpu::NativeStream stream) {
  if (is_open_) device_->runtime().wait(stream, done_.get());
}

void LaneGraphs::end_call(gpu::NativeStream stream) {
  if (!is_open_) return;
  if (any())
    device_->runtime().record(done_.get(), stream);
  else
    is_open_ = false;  // one that has gone may be running still, which this call waited for
}

bool LaneGraphs::any(const Span& span) noexcept {
  const std::lock_guard lock(mutex_);
  if (!graphs_.empty()) forget_those_gone();
  // One of which nothing is known stands for those before it, too.
  return std::ranges::any_of(graphs_, [&](const auto& graph) {
    return graph->number > span.after && (graph->number <= span.until || !graph->life);
  });
}

uint64_t LaneGraphs::count() noexcept {
  const std::lock_guard lock(mutex_);
  return count_;
}

void LaneGraphs::forget_those_gone() noexcept {
  const gpu::CaptureModeGuard mode(device_->runtime());
  std::erase_if(graphs_,
                [](const auto& graph) { return graph->life && graph->life->is_destroyed; });
}

}  // namespace torch::comms::nccl
