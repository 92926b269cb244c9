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

#include "gpu/cpu.hpp"

namespace torch::comms::gpu {

// A moment in a stream's work. Any thread.
class CpuMark {
 public:
  void reach() {
    std::lock_guard lock(mutex_);
    reached_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }
  bool reached() {
    std::lock_guard lock(mutex_);
    return reached_;
  }

 private:
  std::mutex mutex_;  // guards reached_; partner of changed_
  std::condition_variable changed_;
  bool reached_ = false;
};

using CpuTask = std::function<void()>;

class CpuEvent;
class CpuStream;

// What a capture has collected. Tasks stand in the order in which they were launched, which every
// dependency agrees with.
class CpuGraph {
 public:
  // How many tasks of each stream come before a point.
  using Clock = std::map<CpuStream*, size_t>;

  explicit CpuGraph(CaptureId id) : id(id) {}
  const CaptureId id;

  void add(CpuStream* stream, CpuTask task);
  // The same, with nothing that comes after it.
  void add_aside(CpuTask task);
  // Every launch waits here for the newest record of `event` before it.
  void add_wait(CpuStream* stream, CpuEvent* event);
  // Every launch records `event` here, which `*mark`, of the same, no longer does.
  void move_record(CpuEvent* event, void** mark);
  // Lives as long as the graph.
  void keep(std::shared_ptr<void> what);
  Clock clock(CpuStream* stream);
  void join(CpuStream* stream, const Clock& after);
  // True if `origin` comes after everything; no stream captures any more then.
  bool end(CpuStream* origin);
  // What one launch does. To be asked for when it is launched: events stand for what they do then.
  CpuTask launch(std::shared_ptr<CpuGraph> self);

 private:
  // A task, or what a launch does with an event.
  struct Step {
    CpuTask task;
    CpuEvent* waited_for = nullptr;
    CpuEvent* recorded = nullptr;
  };
  std::mutex mutex_;  // guards all below
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<std::shared_ptr<void>> kept_;
  std::map<CpuStream*, Clock> members_;
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
  struct Record {
    std::shared_ptr<CpuMark> mark;  // null: done
    bool is_captured = false;
    std::weak_ptr<CpuGraph> graph = {};  // of a record in a capture
    CpuGraph::Clock clock = {};          // what it comes after there
  };
  Record record() {
    std::lock_guard lock(mutex_);
    return record_;
  }
  void set(Record record) {
    std::lock_guard lock(mutex_);
    record_ = std::move(record);
  }

 private:
  std::mutex mutex_;  // guards record_
  Record record_;
};

}  // namespace torch::comms::gpu
