#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/nccl/streams/nccl_call.hpp"
#include "backends/nccl/streams/nccl_device.hpp"
#include "gpu/graph_markers.hpp"

namespace torch::comms::nccl {

// Watches whether graph replays finish the captured operations of one communicator in time.
//
// Operations of which each begins when the one before is done form an operation chain. The graph
// writes to a word of pinned memory when the first operation may begin and when each operation is
// done. The value is the number of the current operation. Nothing waits for these writes. A poll
// sets a bit in the word, so that a word which still has the bit belongs to the same operation in
// the same replay. A word that has lost the bit also shows a replay that has finished since. The
// words live as long as the graph.
//
// Threads: begin(), end() and discard() only the thread that calls operations; all other methods
// any.
//
// Failure: none is reported. A graph that cannot be watched is not watched, which is logged once.
class GraphReplayMonitor {
 public:
  // `period`: the longest time between two polls.
  GraphReplayMonitor(std::shared_ptr<NcclDevice> device, bool enabled,
                     std::chrono::milliseconds period);
  ~GraphReplayMonitor() { stop(); }

  struct MonitoredGraph;
  // An operation between begin() and end(); null if it is not watched. An operation without an
  // end() must be discarded.
  using TrackedOperation = std::shared_ptr<MonitoredGraph>;
  // begin() comes before the launch of an operation that `stream` captures, end() after it.
  // discard() replaces end() if the launch has failed.
  TrackedOperation begin(const NcclCall& call, gpu::NativeStream stream,
                         gpu::CaptureId capture) noexcept;
  void end(TrackedOperation& tracked, gpu::NativeStream stream) noexcept;
  void discard(TrackedOperation& tracked) noexcept;

  struct LateReplay {
    OpName op;
    std::chrono::milliseconds timeout;
    bool has_own_timeout;
    gpu::CaptureId graph;
  };
  struct PollResult {
    bool is_running = false;  // an operation was running at two polls
    std::optional<LateReplay> late;
    bool has_events = false;  // deliver_events() has events
  };
  // An operation has begun or ended in a replay, as far as polls can see. Of several replays
  // between two polls, one is reported. See GraphReplayHook.
  struct ReplayEvent {
    gpu::CaptureId graph;
    uint64_t replay;
    gpu::NativeStream stream;
    uint64_t index;
    bool is_begin;
  };
  // After collect_events() polls record events, which deliver_events() passes to `callback` in
  // their order. It does nothing while another thread delivers.
  void collect_events() noexcept { is_collecting_.store(true); }
  void deliver_events(const std::function<void(const ReplayEvent&)>& callback);

  // Reads the words of all graphs; does nothing until the next poll is due.
  PollResult poll(Clock::time_point now) noexcept;

  // True if there are graphs to poll; false forever after stop().
  bool is_watching() const noexcept { return graphs_.load() > 0 && !is_stopped_.load(); }
  void stop() noexcept { is_stopped_.store(true); }
  bool is_stopped() const noexcept { return is_stopped_.load(); }
  // Sets the timeout of operations that have none of their own, also of operations captured before.
  void set_default_timeout(std::chrono::milliseconds limit) noexcept {
    default_timeout_.store(limit);
  }
  // Returns: why graphs are not watched; "" if they are.
  const std::string& unavailable_reason() const noexcept { return unavailable_reason_; }

 private:
  std::shared_ptr<MonitoredGraph> graph_of(gpu::NativeStream stream, gpu::CaptureId capture);
  uint32_t* allocate_word(MonitoredGraph& graph);
  struct OperationChain;
  void track(MonitoredGraph& graph, OperationChain& chain, size_t number);
  std::chrono::milliseconds timeout_of(const LateReplay& operation) const noexcept;

  const std::shared_ptr<NcclDevice> device_;
  const std::chrono::milliseconds period_;
  std::string unavailable_reason_;
  const gpu::GraphMarkerTable* marks_ = nullptr;
  std::atomic<bool> is_stopped_{false}, is_collecting_{false};
  std::atomic<std::chrono::milliseconds> default_timeout_{
      std::chrono::milliseconds(0)};  // 0: each operation's timeout at capture
  std::atomic<size_t> graphs_{0};

  std::mutex mutex_;  // guards all members below, and the MonitoredGraphs
  std::vector<std::shared_ptr<MonitoredGraph>> monitored_;
  Clock::time_point next_poll_{};
  bool has_warned_ = false, is_delivering_ = false;
  std::vector<ReplayEvent> events_;  // not delivered yet
};

}  // namespace torch::comms::nccl
