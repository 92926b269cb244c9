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

// A moment in a stream's work. Any thread.
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
  std::mutex mutex_;  // guards reached_; partner of changed_
  std::condition_variable changed_;
  bool is_set_ = false;
};

using CpuTask = std::function<void()>;

class CpuEvent;
class CpuStream;

// What a capture has collected. Tasks stand in the order in which they were launched, which every
// dependency agrees with.
class CpuGraph {
 public:
  // How many tasks of each stream come before a point.
  using VectorClock = std::map<CpuStream*, size_t>;

  explicit CpuGraph(CaptureId id) : id(id) {}
  const CaptureId id;

  void add(CpuStream* stream, CpuTask task);
  // The same, with nothing that comes after it.
  void add_unordered(CpuTask task);
  // Every launch waits here for the newest record of `event` before it.
  void add_wait(CpuStream* stream, CpuEvent* event);
  // Every launch records `event` here, which `*mark`, of the same, no longer does.
  void move_record(CpuEvent* event, void** mark);
  // Lives as long as the graph.
  void retain(std::shared_ptr<void> what);
  VectorClock clock(CpuStream* stream);
  void join(CpuStream* stream, const VectorClock& after);
  // True if `origin` comes after everything; no stream captures any more then.
  bool end(CpuStream* origin);
  // What one launch does. To be asked for when it is launched: events stand for what they do then.
  CpuTask launch(std::shared_ptr<CpuGraph> self);

 private:
  // A task, or what a launch does with an event.
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

// A thread and its queue.
class CpuStream {
 public:
  CpuStream();
  ~CpuStream();  // the thread goes on until its queue is empty
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  void launch(CpuTask task);
  void drain();

  std::shared_ptr<CpuGraph> capture();  // null while there is none
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

// What an event's last record stands for.
class CpuEvent {
 public:
  struct CpuEventRecord {
    std::shared_ptr<CpuLatch> latch;  // null: done
    bool is_captured = false;
    std::weak_ptr<CpuGraph> graph = {};  // of a record in a capture
    CpuGraph::VectorClock clock = {};    // what it comes after there
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
