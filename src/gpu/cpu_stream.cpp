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
  steps_.push_back(std::make_unique<Step>(Step{std::move(task)}));
  ++members_[stream][stream];
}

void CpuGraph::add_aside(CpuTask task) {
  std::lock_guard lock(mutex_);
  steps_.push_back(std::make_unique<Step>(Step{std::move(task)}));
}

void CpuGraph::add_wait(CpuStream* stream, CpuEvent* event) {
  std::lock_guard lock(mutex_);
  steps_.push_back(std::make_unique<Step>(Step{{}, event}));
  ++members_[stream][stream];
}

void CpuGraph::move_record(CpuEvent* event, void** mark) {
  std::lock_guard lock(mutex_);
  std::erase_if(steps_, [&](const auto& step) { return step.get() == *mark; });
  steps_.push_back(std::make_unique<Step>(Step{{}, nullptr, event}));
  *mark = steps_.back().get();
}

void CpuGraph::keep(std::shared_ptr<void> what) {
  std::lock_guard lock(mutex_);
  kept_.push_back(std::move(what));
}

CpuGraph::Clock CpuGraph::clock(CpuStream* stream) {
  std::lock_guard lock(mutex_);
  return members_[stream];
}

void CpuGraph::join(CpuStream* stream, const Clock& after) {
  std::lock_guard lock(mutex_);
  auto& clock = members_[stream];
  for (const auto& [other, count] : after) clock[other] = std::max(clock[other], count);
}

bool CpuGraph::end(CpuStream* origin) {
  std::lock_guard lock(mutex_);
  auto& reached = members_[origin];
  bool joined = true;
  for (auto& [stream, clock] : members_) {
    joined = joined && reached[stream] == clock[stream];
    stream->set_capture(nullptr);
  }
  return joined;
}

CpuTask CpuGraph::launch(std::shared_ptr<CpuGraph> self) {
  std::vector<CpuTask> tasks;
  for (const auto& step : steps_) {
    if (step->recorded != nullptr) {
      auto mark = std::make_shared<CpuMark>();
      step->recorded->set({mark});
      tasks.emplace_back([mark] { mark->reach(); });
    } else if (step->waited_for != nullptr) {
      if (auto mark = step->waited_for->record().mark)
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
