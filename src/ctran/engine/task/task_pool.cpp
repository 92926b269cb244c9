#include "ctran/engine/task/task_pool.hpp"

#include "base/current_sequence.hpp"
#include "ctran/engine/group/group_state.hpp"
#include "ctran/engine/task/collective_task.hpp"
#include "ctran/engine/task/messages_task.hpp"

namespace torch::comms::ctran {

TaskPool::TaskPool() = default;
TaskPool::~TaskPool() {
  delete collectives_.last.load(std::memory_order_relaxed);
  delete messages_.last.load(std::memory_order_relaxed);
}

template <class Kind>
Kind* TaskPool::acquire(FreeTasks<Kind>& free_tasks) {
  auto* task = free_tasks.last.exchange(nullptr, std::memory_order_acquire);
  if (task == nullptr) {
    const std::lock_guard lock(mutex_);
    free_tasks.more.reserve(kMaxFreeTasks);  // so that put_back() cannot fail
    if (!free_tasks.more.empty()) {
      task = free_tasks.more.back().release();
      free_tasks.more.pop_back();
    }
  }
  if (task == nullptr) task = new Kind;
  task->references_.store(2, std::memory_order_relaxed);
  task->is_done.store(false, std::memory_order_relaxed);
  task->error.reset();
  task->listener = nullptr;
  task->deadline = task->next_check = Deadline::max();
  task->timeout = kNoTimeout;
  task->is_local_failure = false;
  task->sequence = 0;
  task->call_number = base::current_sequence();
  task->is_queued = task->is_collective;
  return task;
}

CollectiveTask* TaskPool::acquire_collective() { return acquire(collectives_); }
MessagesTask* TaskPool::acquire_messages() { return acquire(messages_); }

template <class Kind>
void TaskPool::put_back(Kind* task, FreeTasks<Kind>& free_tasks) noexcept {
  Kind* none = nullptr;
  if (free_tasks.last.compare_exchange_strong(none, task, std::memory_order_release)) return;
  std::unique_ptr<Kind> owned(task);
  const std::lock_guard lock(mutex_);
  if (free_tasks.more.size() < free_tasks.more.capacity())
    free_tasks.more.push_back(std::move(owned));
}

void TaskPool::release(Task* task) noexcept {
  if (!task->is_pooled)
    delete task;
  else if (task->is_collective)
    put_back(static_cast<CollectiveTask*>(task), collectives_);
  else
    put_back(static_cast<MessagesTask*>(task), messages_);
}

}  // namespace torch::comms::ctran
