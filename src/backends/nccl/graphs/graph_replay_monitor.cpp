#include "backends/nccl/graphs/graph_replay_monitor.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/os/log.hpp"
#include "gpu/pinned_pool.hpp"

namespace torch::comms::nccl {
namespace {

// The values of a word: kIdle, or twice the number of an operation in its chain, counted from 1. A
// poll adds kPolled, also to kIdle.
constexpr uint32_t kIdle = 0, kPolled = 1;
constexpr uint32_t value_of(size_t number) { return static_cast<uint32_t>(2 * number); }
constexpr size_t number_of(uint32_t value) { return value / 2; }
constexpr size_t kChunkBytes = 4096;
constexpr size_t kChunkWords = kChunkBytes / sizeof(uint32_t);
// How many polls there are within the shortest timeout.
constexpr int kPollsPerTimeout = 4;

// Returns: the pool of pinned words for a runtime's graphs. It never returns memory to the runtime,
// because the last owner of a block may be a thread of the runtime, which must not call it.
std::shared_ptr<gpu::PinnedPool> pool_of(const std::shared_ptr<const gpu::Runtime>& runtime) {
  static std::mutex mutex;
  static auto* const pools =
      new std::vector<std::pair<std::string_view, std::shared_ptr<gpu::PinnedPool>>>;
  const std::lock_guard lock(mutex);
  for (const auto& [name, pool] : *pools)
    if (name == runtime->name()) return pool;
  return pools
      ->emplace_back(runtime->name(),
                     gpu::PinnedPool::make(runtime, std::numeric_limits<size_t>::max()))
      .second;
}

}  // namespace

struct GraphReplayMonitor::OperationChain {
  uint32_t* word;
  std::vector<LateReplay> operations;
  gpu::NativeStream stream;
  uint64_t first;                // index of its first operation in the graph
  Clock::time_point since = {};  // when a poll first read this value of the word
  size_t current = 0;            // the operation at the last poll; 0: none
  uint64_t replays = 0;          // replays of the graph when this chain was seen to begin
};

// A watched graph. The CUDA graph also owns it.
struct GraphReplayMonitor::MonitoredGraph : gpu::GraphLifetime {
  explicit MonitoredGraph(gpu::CaptureId id) : id(id) {}
  const gpu::CaptureId id;
  std::vector<std::shared_ptr<void>> chunks;
  size_t words = 0;  // words used in `chunks`
  std::vector<OperationChain> chains;
  uint64_t replays = 0;        // replays that were seen to begin
  gpu::GraphMarker last;       // the last marker of the last chain
  bool may_still_run = false;  // the last chain is complete and may be continued
};

GraphReplayMonitor::GraphReplayMonitor(std::shared_ptr<NcclDevice> device, bool enabled,
                                       std::chrono::milliseconds period)
    : device_(std::move(device)), period_(period) {
  if (!enabled)
    unavailable_reason_ =
        "turned off by TORCHCOMM_NCCLX_GRAPH_TIMEOUT_MONITORING or hint enable_cuda_graph_support";
  else
    marks_ = gpu::graph_markers_of(device_->runtime(), &unavailable_reason_);
}

std::shared_ptr<GraphReplayMonitor::MonitoredGraph> GraphReplayMonitor::graph_of(
    gpu::NativeStream stream, gpu::CaptureId capture) {
  const auto found =
      std::ranges::find(monitored_, capture, [](const auto& graph) { return graph->id; });
  if (found != monitored_.end()) return *found;
  auto graph = std::make_shared<MonitoredGraph>(capture);
  gpu::retain_with_graph(*marks_, stream, graph);
  monitored_.push_back(graph);
  graphs_.store(monitored_.size());
  return graph;
}

uint32_t* GraphReplayMonitor::allocate_word(MonitoredGraph& graph) {
  const size_t place = graph.words++ % kChunkWords;
  if (place == 0) {
    const NcclDevice::DeviceCallGuard scope(*device_);
    graph.chunks.push_back(pool_of(device_->shared_runtime())->acquire(kChunkBytes));
    std::fill_n(static_cast<uint32_t*>(graph.chunks.back().get()), kChunkWords, kIdle | kPolled);
  }
  return static_cast<uint32_t*>(graph.chunks.back().get()) + place;
}

GraphReplayMonitor::TrackedOperation GraphReplayMonitor::begin(const NcclCall& call,
                                                               gpu::NativeStream stream,
                                                               gpu::CaptureId capture) noexcept {
  if (marks_ == nullptr || is_stopped_) return nullptr;
  try {
    const std::lock_guard lock(mutex_);
    auto graph = graph_of(stream, capture);
    const LateReplay operation{call.op, call.timeout, call.has_own_timeout, capture};
    if (std::exchange(graph->may_still_run, false)) {
      // The marker of the previous operation's end becomes the marker of this begin, if nothing is
      // between the two. If that fails, a new marker is added.
      auto& chain = graph->chains.back();
      chain.operations.push_back(operation);
      bool continues = false;
      marks_->change(stream, graph->last, value_of(chain.operations.size()), &continues);
      if (continues) return graph;
      chain.operations.pop_back();
    }
    const auto first = graph->chains.empty()
                           ? 0
                           : graph->chains.back().first + graph->chains.back().operations.size();
    graph->chains.push_back({allocate_word(*graph), {operation}, stream, first});
    const int code =
        marks_->add(stream, nullptr, graph->chains.back().word, value_of(1), &graph->last);
    if (code == gpu::kSuccess) return graph;
    graph->chains.pop_back();
    throw CommError(Errc::kVendor,
                    "cannot add a marker to the graph: error " + std::to_string(code));
  } catch (const std::exception& e) {
    if (!std::exchange(has_warned_, true))
      base::log(base::LogLevel::kWarning,
                "communicator '" + call.comm +
                    "': replays of a graph are not watched for timeouts: " + e.what());
  }
  return nullptr;
}

void GraphReplayMonitor::end(TrackedOperation& tracked, gpu::NativeStream stream) noexcept {
  if (tracked == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    // The marker also comes after the marker before, which runs concurrently with the operation and
    // must not be written last.
    tracked->may_still_run = marks_->add(stream, &tracked->last, tracked->last.word, kIdle,
                                         &tracked->last) == gpu::kSuccess;
    if (tracked->may_still_run) return tracked.reset();
  }
  discard(tracked);
}

void GraphReplayMonitor::discard(TrackedOperation& tracked) noexcept {
  if (tracked == nullptr) return;
  // The operation would seem never to end. Polls ignore numbers that the chain does not have.
  const std::lock_guard lock(mutex_);
  tracked->chains.back().operations.pop_back();
  tracked.reset();
}

std::chrono::milliseconds GraphReplayMonitor::timeout_of(
    const LateReplay& operation) const noexcept {
  const auto now = default_timeout_.load();
  return operation.has_own_timeout || now.count() == 0 ? operation.timeout : now;
}

// Records events: the word has changed since the last poll, to operation `number`; 0: to kIdle.
void GraphReplayMonitor::track(MonitoredGraph& graph, OperationChain& chain, size_t number) {
  const auto before = std::exchange(chain.current, number);
  const auto record_event = [&](size_t operation, bool begins) {
    if (is_collecting_)
      events_.push_back(
          {graph.id, graph.replays - 1, chain.stream, chain.first + operation - 1, begins});
  };
  const auto record_range = [&](size_t from, size_t to) {
    for (auto operation = from; operation < to; ++operation) {
      record_event(operation, true);
      record_event(operation, false);
    }
  };
  const auto all = chain.operations.size() + 1;
  const bool continues = before != 0 && (number == 0 || number > before);
  if (before != 0) record_event(before, false);
  if (before != 0 && !continues) record_range(before + 1, all);
  if (!continues) {
    // A chain that was already seen in this replay is now in the next replay.
    if (chain.replays == graph.replays) ++graph.replays;
    chain.replays = graph.replays;
  }
  record_range(continues ? before + 1 : 1, number == 0 ? all : number);
  if (number != 0) record_event(number, true);
}

void GraphReplayMonitor::deliver_events(const std::function<void(const ReplayEvent&)>& callback) {
  std::unique_lock lock(mutex_);
  if (std::exchange(is_delivering_, true)) return;
  while (!events_.empty()) {
    const auto events = std::exchange(events_, {});
    lock.unlock();
    for (const auto& event : events) callback(event);
    lock.lock();
  }
  is_delivering_ = false;
}

GraphReplayMonitor::PollResult GraphReplayMonitor::poll(Clock::time_point now) noexcept {
  PollResult result;
  if (!is_watching()) return result;
  const std::lock_guard lock(mutex_);
  if (now < next_poll_) return result;
  std::erase_if(monitored_, [](const auto& graph) { return graph->is_destroyed.load(); });
  graphs_.store(monitored_.size());
  auto period = period_;
  for (const auto& graph : monitored_)
    for (auto& chain : graph->chains) {
      for (const auto& operation : chain.operations)
        period = std::min(period, timeout_of(operation) / kPollsPerTimeout);
      const std::atomic_ref word(*chain.word);
      auto value = word.load();
      if (number_of(value) > chain.operations.size()) continue;
      if ((value & kPolled) == 0) {
        if (!word.compare_exchange_strong(value, value | kPolled)) continue;
        chain.since = now;
        track(*graph, chain, number_of(value));
        continue;
      }
      if (number_of(value) == 0) continue;
      result.is_running = true;
      auto operation = chain.operations[number_of(value) - 1];
      operation.timeout = timeout_of(operation);
      if (now - chain.since > operation.timeout && !result.late) result.late = operation;
    }
  result.has_events = !events_.empty();
  next_poll_ = now + period;
  return result;
}

}  // namespace torch::comms::nccl
