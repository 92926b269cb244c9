#include "ctran/engine/task_pool.hpp"

#include "ctran/engine/collective_task.hpp"
#include "ctran/engine/membership.hpp"
#include "ctran/engine/messages_task.hpp"

namespace torch::comms::ctran {

TaskPool::TaskPool() = default;
TaskPool::~TaskPool() = default;

template <class Kind>
Kind* TaskPool::take(std::vector<std::unique_ptr<Kind>>& kept) {
  std::unique_ptr<Kind> task;
  {
    const std::lock_guard lock(mutex_);
    if (!kept.empty()) {
      task = std::move(kept.back());
      kept.pop_back();
    } else {
      kept.reserve(kMostKept);  // so that giving one back cannot fail
    }
  }
  if (!task) task = std::make_unique<Kind>();
  task->references_.store(2, std::memory_order_relaxed);
  task->done.store(false, std::memory_order_relaxed);
  task->error.reset();
  task->listener = nullptr;
  task->deadline = task->idle_since = Deadline::max();
  task->limit = kNoLimit;
  task->asked = false;
  task->sequence = 0;
  task->queued = task->collective;
  return task.release();
}

CollectiveTask* TaskPool::take_collective() { return take(collectives_); }
MessagesTask* TaskPool::take_messages() { return take(messages_); }

void TaskPool::give(Task* task) noexcept {
  if (!task->pooled) {
    delete task;
    return;
  }
  const auto keep = [&](auto* which, auto& kept) {
    std::unique_ptr<std::remove_pointer_t<decltype(which)>> owned(which);
    const std::lock_guard lock(mutex_);
    if (kept.size() < kept.capacity()) kept.push_back(std::move(owned));
  };
  if (task->collective)
    keep(static_cast<CollectiveTask*>(task), collectives_);
  else
    keep(static_cast<MessagesTask*>(task), messages_);
}

}  // namespace torch::comms::ctran
