#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace torch::comms::ctran {

class Task;
class CollectiveTask;
class MessagesTask;

// Tasks that nobody has any more, with the memory that they have grown. Threads: any.
class TaskPool {
 public:
  TaskPool();
  ~TaskPool();

  // With two references: the caller's and the engine's.
  CollectiveTask* acquire_collective();
  MessagesTask* acquire_messages();
  void release(Task* task) noexcept;

 private:
  static constexpr size_t kMaxFreeTasks = 256;
  template <class Kind>
  struct FreeTasks {
    std::atomic<Kind*> last{nullptr};  // without the lock: one call after another needs no more
    std::vector<std::unique_ptr<Kind>> more;
  };
  template <class Kind>
  Kind* acquire(FreeTasks<Kind>& kept);
  template <class Kind>
  void put_back(Kind* task, FreeTasks<Kind>& kept) noexcept;

  std::mutex mutex_;  // guards what is more than one
  FreeTasks<CollectiveTask> collectives_;
  FreeTasks<MessagesTask> messages_;
};

}  // namespace torch::comms::ctran
