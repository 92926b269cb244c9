#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/cpu_runtime.hpp"

namespace torch::comms::gpu {

// A flag that a stream sets when it reaches a point in its work.
// Threads: any.
class CpuLatch {
 public:
  void set() {
    std::lock_guard lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_set_; });
  }
  bool is_set() {
    std::lock_guard lock(mutex_);
    return is_set_;
  }

 private:
  std::mutex mutex_;  // guards is_set_; partner of changed_
  std::condition_variable changed_;
  bool is_set_ = false;
};

using CpuTask = std::function<void()>;

class CpuEvent;
class CpuStream;

// The work collected by a capture. Tasks are stored in launch order, which is consistent with all
// dependencies.
class CpuGraph {
 public:
  // The number of tasks of each stream that come before a point.
  using VectorClock = std::map<CpuStream*, size_t>;

  explicit CpuGraph(CaptureId id) : id(id) {}
  const CaptureId id;

  void add(CpuStream* stream, CpuTask task);
  // Adds a task that no later task depends on.
  void add_unordered(CpuTask task);
  // Each launch waits here for the newest record of `event` before the launch.
  void add_wait(CpuStream* stream, CpuEvent* event);
  // Each launch records `event` here. `*mark`, the node of an earlier record of `event`, is removed
  // and replaced.
  void move_record(CpuEvent* event, void** mark);
  // Keeps `what` alive as long as the graph.
  void retain(std::shared_ptr<void> what);
  VectorClock clock(CpuStream* stream);
  void join(CpuStream* stream, const VectorClock& after);
  // Ends the capture on all its streams. Returns: whether `origin` waits for all other streams.
  bool end(CpuStream* origin);
  // Returns the work of one launch. Call it at the launch, because it uses the current records of
  // events.
  CpuTask launch(std::shared_ptr<CpuGraph> self);

 private:
  // A task, or an operation on an event.
  struct CpuGraphNode {
    CpuTask task;
    CpuEvent* waited_for = nullptr;
    CpuEvent* recorded = nullptr;
  };
  std::mutex mutex_;  // guards all below
  std::vector<std::unique_ptr<CpuGraphNode>> nodes_;
  std::vector<std::shared_ptr<void>> retained_;
  std::map<CpuStream*, VectorClock> clocks_;
};

// A stream of the host memory runtime: a thread and its queue.
class CpuStream {
 public:
  CpuStream();
  ~CpuStream();  // the thread runs until its queue is empty
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  void launch(CpuTask task);
  void drain();

  std::shared_ptr<CpuGraph> capture();  // null if the stream is not capturing
  void set_capture(std::shared_ptr<CpuGraph> graph);

 private:
  struct Queue {
    std::mutex mutex;  // guards all below; partner of changed
    std::condition_variable changed;
    std::deque<CpuTask> tasks;
    bool busy = false, closed = false;
    std::shared_ptr<CpuGraph> capture;
  };
  const std::shared_ptr<Queue> queue_;  // shared with the thread
};

// An event of the host memory runtime: its newest record.
class CpuEvent {
 public:
  struct CpuEventRecord {
    std::shared_ptr<CpuLatch> latch;  // null: complete
    bool is_captured = false;
    std::weak_ptr<CpuGraph> graph = {};  // if recorded in a capture
    CpuGraph::VectorClock clock = {};    // the work before the record in that capture
  };
  CpuEventRecord record() {
    std::lock_guard lock(mutex_);
    return record_;
  }
  void set(CpuEventRecord record) {
    std::lock_guard lock(mutex_);
    record_ = std::move(record);
  }

 private:
  std::mutex mutex_;  // guards record_
  CpuEventRecord record_;
};

}  // namespace torch::comms::gpu
