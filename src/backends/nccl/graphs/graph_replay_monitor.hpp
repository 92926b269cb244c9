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

// The operations of one communicator that graphs hold, and whether replays finish them in time.
//
// Operations of which each begins when the one before is done are a run, whose graph writes to a
// word of pinned memory which of them is under way: when the first may begin, and when each is
// done. Nothing waits for these writes. A look changes what it finds, so that a word which still
// has the look's own value is of the same operation in the same replay. What a graph writes to
// lives as long as the graph. So a word that has lost it tells of a replay, too, which had gone by.
//
// Threads: begin() and end() of the one that calls operations; the others any.
// Failure: never. A graph that cannot be watched is not, which is logged once.
class GraphReplayMonitor {
 public:
  // `period`: how long two looks are apart at most.
  GraphReplayMonitor(std::shared_ptr<NcclDevice> device, bool wanted,
                     std::chrono::milliseconds period);
  ~GraphReplayMonitor() { stop(); }

  struct MonitoredGraph;
  // An operation between begin() and end(): null where it is not watched, and after both. One that
  // has no end() is given up.
  using TrackedOperation = std::shared_ptr<MonitoredGraph>;
  // Before and after the launch of an operation that `stream` captures.
  TrackedOperation begin(const NcclCall& call, gpu::NativeStream stream,
                         gpu::CaptureId capture) noexcept;
  void end(TrackedOperation& begun, gpu::NativeStream stream) noexcept;
  void discard(TrackedOperation& begun) noexcept;

  struct LateReplay {
    OpName op;
    std::chrono::milliseconds timeout;
    bool has_own_timeout;
    gpu::CaptureId graph;
  };
  struct PollResult {
    bool is_running = false;  // something was running at two looks
    std::optional<LateReplay> late;
    bool has_events = false;  // for deliver_events()
  };
  // An operation has begun, or ended, in a replay, as far as looks can tell: of replays between two
  // of them there is one. See GraphReplayHook.
  struct ReplayEvent {
    gpu::CaptureId graph;
    uint64_t replay;
    gpu::NativeStream stream;
    uint64_t index;
    bool is_begin;
  };
  // From now on looks find events, and deliver_events() takes them to `told` in their order:
  // nothing where another thread does so just now.
  void collect_events() noexcept { is_collecting_.store(true); }
  void deliver_events(const std::function<void(const ReplayEvent&)>& told);

  // Does nothing between two times to look.
  PollResult poll(Clock::time_point now) noexcept;

  // Whether graphs are there to look at; false for good after abort_for_reconfigure().
  bool is_watching() const noexcept { return graphs_.load() > 0 && !is_stopped_.load(); }
  void stop() noexcept { is_stopped_.store(true); }
  bool is_stopped() const noexcept { return is_stopped_.load(); }
  // From now on the limit of operations, also of those captured before, that have none of their
  // own.
  void set_default_timeout(std::chrono::milliseconds limit) noexcept {
    default_timeout_.store(limit);
  }
  // Why nothing is watched; "" where graphs are.
  const std::string& unavailable_reason() const noexcept { return unavailable_reason_; }

 private:
  std::shared_ptr<MonitoredGraph> graph_of(gpu::NativeStream stream, gpu::CaptureId capture);
  uint32_t* allocate_word(MonitoredGraph& graph);
  struct OperationChain;
  void track(MonitoredGraph& graph, OperationChain& run, size_t number);
  std::chrono::milliseconds timeout_of(const LateReplay& operation) const noexcept;

  const std::shared_ptr<NcclDevice> device_;
  const std::chrono::milliseconds period_;
  std::string unavailable_reason_;
  const gpu::GraphMarkerTable* marks_ = nullptr;
  std::atomic<bool> is_stopped_{false}, is_collecting_{false};
  std::atomic<std::chrono::milliseconds> default_timeout_{
      std::chrono::milliseconds(0)};  // 0: not set
  std::atomic<size_t> graphs_{0};

  std::mutex mutex_;  // guards all below, and what graphs have
  std::vector<std::shared_ptr<MonitoredGraph>> monitored_;
  Clock::time_point next_poll_{};
  bool has_warned_ = false, is_delivering_ = false;
  std::vector<ReplayEvent> events_;  // that nobody has been told of
};

}  // namespace torch::comms::nccl
