#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/nccl/call.hpp"
#include "backends/nccl/device.hpp"
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
class Replays {
 public:
  // `period`: how long two looks are apart at most.
  Replays(std::shared_ptr<Device> device, bool wanted, std::chrono::milliseconds period);
  ~Replays() { stop(); }

  struct Graph;
  // An operation between begin() and end(): null where it is not watched, and after both. One that
  // has no end() is given up.
  using Begun = std::shared_ptr<Graph>;
  // Before and after the launch of an operation that `stream` captures.
  Begun begin(const Call& call, gpu::NativeStream stream, gpu::CaptureId capture) noexcept;
  void end(Begun& begun, gpu::NativeStream stream) noexcept;
  void give_up(Begun& begun) noexcept;

  struct Late {
    OpName op;
    std::chrono::milliseconds limit;
    bool limit_is_own;
    gpu::CaptureId graph;
  };
  struct Seen {
    bool running = false;  // something was running at two looks
    std::optional<Late> late;
    bool has_events = false;  // for tell()
  };
  // An operation has begun, or ended, in a replay, as far as looks can tell: of replays between two
  // of them there is one. See GraphReplayHook.
  struct Event {
    gpu::CaptureId graph;
    uint64_t replay;
    gpu::NativeStream stream;
    uint64_t index;
    bool begins;
  };
  // From now on looks find events, and tell() takes them to `told` in their order: nothing where
  // another thread does so just now.
  void collect_events() noexcept { collects_.store(true); }
  void tell(const std::function<void(const Event&)>& told);

  // Does nothing between two times to look.
  Seen look(Clock::time_point now) noexcept;

  // Whether graphs are there to look at; false for good after stop().
  bool is_watching() const noexcept { return graphs_.load() > 0 && !stopped_.load(); }
  void stop() noexcept { stopped_.store(true); }
  bool is_stopped() const noexcept { return stopped_.load(); }
  // From now on the limit of operations, also of those captured before, that have none of their
  // own.
  void set_default_limit(std::chrono::milliseconds limit) noexcept { default_.store(limit); }
  // Why nothing is watched; "" where graphs are.
  const std::string& why_not() const noexcept { return why_not_; }

 private:
  std::shared_ptr<Graph> graph_of(gpu::NativeStream stream, gpu::CaptureId capture);
  uint32_t* take_word(Graph& graph);
  struct Run;
  void follow(Graph& graph, Run& run, size_t number);
  std::chrono::milliseconds limit_of(const Late& operation) const noexcept;

  const std::shared_ptr<Device> device_;
  const std::chrono::milliseconds period_;
  std::string why_not_;
  const gpu::GraphMarkerTable* marks_ = nullptr;
  std::atomic<bool> stopped_{false}, collects_{false};
  std::atomic<std::chrono::milliseconds> default_{std::chrono::milliseconds(0)};  // 0: not set
  std::atomic<size_t> graphs_{0};

  std::mutex mutex_;  // guards all below, and what graphs have
  std::vector<std::shared_ptr<Graph>> all_;
  Clock::time_point next_look_{};
  bool complained_ = false, telling_ = false;
  std::vector<Event> events_;  // that nobody has been told of
};

}  // namespace torch::comms::nccl
