#pragma once

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
  Kind* take(std::vector<std::unique_ptr<Kind>>& kept);

  std::mutex mutex_;  // guards both
  std::vector<std::unique_ptr<CollectiveTask>> collectives_;
  std::vector<std::unique_ptr<MessagesTask>> messages_;
};

}  // namespace torch::comms::ctran
