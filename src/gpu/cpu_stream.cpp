#include "gpu/cpu_stream.hpp"

#include <algorithm>
#include <thread>

namespace torch::comms::gpu {

CpuStream::CpuStream() : queue_(std::make_shared<Queue>()) {
  std::thread([queue = queue_] {
    std::unique_lock lock(queue->mutex);
    while (true) {
      queue->changed.wait(lock, [&] { return queue->closed || !queue->tasks.empty(); });
      if (queue->tasks.empty()) return;
      auto task = std::move(queue->tasks.front());
      queue->tasks.pop_front();
      queue->busy = true;
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
      queue->busy = false;
      queue->changed.notify_all();
    }
  }).detach();
}

CpuStream::~CpuStream() {
  std::lock_guard lock(queue_->mutex);
  queue_->closed = true;
  queue_->changed.notify_all();
}

void CpuStream::launch(CpuTask task) {
  if (const auto graph = capture()) return graph->add(this, std::move(task));
  std::lock_guard lock(queue_->mutex);
  queue_->tasks.push_back(std::move(task));
  queue_->changed.notify_all();
}

void CpuStream::drain() {
  std::unique_lock lock(queue_->mutex);
  queue_->changed.wait(lock, [this] { return queue_->tasks.empty() && !queue_->busy; });
}

std::shared_ptr<CpuGraph> CpuStream::capture() {
  std::lock_guard lock(queue_->mutex);
  return queue_->capture;
}

void CpuStream::set_capture(std::shared_ptr<CpuGraph> graph) {
  std::lock_guard lock(queue_->mutex);
  queue_->capture = std::move(graph);
}

void CpuGraph::add(CpuStream* stream, CpuTask task) {
  std::lock_guard lock(mutex_);
  nodes_.push_back(std::make_unique<CpuGraphNode>(CpuGraphNode{std::move(task)}));
  ++clocks_[stream][stream];
}

void CpuGraph::add_unordered(CpuTask task) {
  std::lock_guard lock(mutex_);
  nodes_.push_back(std::make_unique<CpuGraphNode>(CpuGraphNode{std::move(task)}));
}

void CpuGraph::add_wait(CpuStream* stream, CpuEvent* event) {
  std::lock_guard lock(mutex_);
  nodes_.push_back(std::make_unique<CpuGraphNode>(CpuGraphNode{{}, event}));
  ++clocks_[stream][stream];
}

void CpuGraph::move_record(CpuEvent* event, void** mark) {
  std::lock_guard lock(mutex_);
  std::erase_if(nodes_, [&](const auto& step) { return step.get() == *mark; });
  nodes_.push_back(std::make_unique<CpuGraphNode>(CpuGraphNode{{}, nullptr, event}));
  *mark = nodes_.back().get();
}

void CpuGraph::retain(std::shared_ptr<void> what) {
  std::lock_guard lock(mutex_);
  retained_.push_back(std::move(what));
}

CpuGraph::VectorClock CpuGraph::clock(CpuStream* stream) {
  std::lock_guard lock(mutex_);
  return clocks_[stream];
}

void CpuGraph::join(CpuStream* stream, const VectorClock& after) {
  std::lock_guard lock(mutex_);
  auto& clock = clocks_[stream];
  for (const auto& [other, count] : after) clock[other] = std::max(clock[other], count);
}

bool CpuGraph::end(CpuStream* origin) {
  std::lock_guard lock(mutex_);
  auto& reached = clocks_[origin];
  bool joined = true;
  for (auto& [stream, clock] : clocks_) {
    joined = joined && reached[stream] == clock[stream];
    stream->set_capture(nullptr);
  }
  return joined;
}

CpuTask CpuGraph::launch(std::shared_ptr<CpuGraph> self) {
  std::vector<CpuTask> tasks;
  for (const auto& step : nodes_) {
    if (step->recorded != nullptr) {
      auto mark = std::make_shared<CpuLatch>();
      step->recorded->set({mark});
      tasks.emplace_back([mark] { mark->set(); });
    } else if (step->waited_for != nullptr) {
      if (auto mark = step->waited_for->record().latch)
        tasks.emplace_back([mark = std::move(mark)] { mark->wait(); });
    } else {
      tasks.push_back(step->task);
    }
  }
  return [self = std::move(self), tasks = std::move(tasks)] {
    for (const auto& task : tasks) task();
  };
}

}  // namespace torch::comms::gpu
