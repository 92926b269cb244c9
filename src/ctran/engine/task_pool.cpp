#include "ctran/engine/task_pool.hpp"

#include "base/current_sequence.hpp"
#include "ctran/engine/collective_task.hpp"
#include "ctran/engine/membership.hpp"
#include "ctran/engine/messages_task.hpp"

namespace torch::comms::ctran {

TaskPool::TaskPool() = default;
TaskPool::~TaskPool() {
  delete collectives_.last.load(std::memory_order_relaxed);
  delete messages_.last.load(std::memory_order_relaxed);
}

template <class Kind>
Kind* TaskPool::take(Kept<Kind>& kept) {
  auto* task = kept.last.exchange(nullptr, std::memory_order_acquire);
  if (task == nullptr) {
    const std::lock_guard lock(mutex_);
    kept.more.reserve(kMostKept);  // so that giving one back cannot fail
    if (!kept.more.empty()) {
      task = kept.more.back().release();
      kept.more.pop_back();
    }
  }
  if (task == nullptr) task = new Kind;
  task->references_.store(2, std::memory_order_relaxed);
  task->done.store(false, std::memory_order_relaxed);
  task->error.reset();
  task->listener = nullptr;
  task->deadline = task->idle_since = Deadline::max();
  task->limit = kNoLimit;
  task->asked = task->fails_alone = false;
  task->sequence = 0;
  task->number = base::current_sequence();
  task->queued = task->collective;
  return task;
}

CollectiveTask* TaskPool::take_collective() { return take(collectives_); }
MessagesTask* TaskPool::take_messages() { return take(messages_); }

template <class Kind>
void TaskPool::keep(Kind* task, Kept<Kind>& kept) noexcept {
  Kind* none = nullptr;
  if (kept.last.compare_exchange_strong(none, task, std::memory_order_release)) return;
  std::unique_ptr<Kind> owned(task);
  const std::lock_guard lock(mutex_);
  if (kept.more.size() < kept.more.capacity()) kept.more.push_back(std::move(owned));
}

void TaskPool::give(Task* task) noexcept {
  if (!task->pooled)
    delete task;
  else if (task->collective)
    keep(static_cast<CollectiveTask*>(task), collectives_);
  else
    keep(static_cast<MessagesTask*>(task), messages_);
}

}  // namespace torch::comms::ctran
