#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace torch::comms::ctran {

class Task;
class CollectiveTask;
class MessagesTask;

// A pool of unreferenced tasks, which keep their allocated memory.
// Threads: any.
class TaskPool {
 public:
  TaskPool();
  ~TaskPool();

  // Return a task with two references: the caller's and the engine's.
  CollectiveTask* acquire_collective();
  MessagesTask* acquire_messages();
  void release(Task* task) noexcept;

 private:
  static constexpr size_t kMaxFreeTasks = 256;
  template <class Kind>
  struct FreeTasks {
    // Used without the lock, which suffices for one call after another.
    std::atomic<Kind*> last{nullptr};
    std::vector<std::unique_ptr<Kind>> more;
  };
  template <class Kind>
  Kind* acquire(FreeTasks<Kind>& free_tasks);
  template <class Kind>
  void put_back(Kind* task, FreeTasks<Kind>& free_tasks) noexcept;

  std::mutex mutex_;  // guards FreeTasks::more
  FreeTasks<CollectiveTask> collectives_;
  FreeTasks<MessagesTask> messages_;
};

}  // namespace torch::comms::ctran
