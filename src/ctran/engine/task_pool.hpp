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
  CollectiveTask* take_collective();
  MessagesTask* take_messages();
  void give(Task* task) noexcept;

 private:
  static constexpr size_t kMostKept = 256;
  template <class Kind>
  struct Kept {
    std::atomic<Kind*> last{nullptr};  // without the lock: one call after another needs no more
    std::vector<std::unique_ptr<Kind>> more;
  };
  template <class Kind>
  Kind* take(Kept<Kind>& kept);
  template <class Kind>
  void keep(Kind* task, Kept<Kind>& kept) noexcept;

  std::mutex mutex_;  // guards what is more than one
  Kept<CollectiveTask> collectives_;
  Kept<MessagesTask> messages_;
};

}  // namespace torch::comms::ctran
