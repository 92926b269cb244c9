#include "backends/nccl/graphs/graph_replay_monitor.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/os/log.hpp"
#include "gpu/pinned_pool.hpp"

namespace torch::comms::nccl {
namespace {

// What a word says: kIdle, or twice the number of an operation of its run, from 1 on. A look adds
// kPolled, also to kIdle.
constexpr uint32_t kIdle = 0, kPolled = 1;
constexpr uint32_t value_of(size_t number) { return static_cast<uint32_t>(2 * number); }
constexpr size_t number_of(uint32_t value) { return value / 2; }
constexpr size_t kChunkBytes = 4096;
constexpr size_t kChunkWords = kChunkBytes / sizeof(uint32_t);
// A limit is looked at this often while it passes.
constexpr int kPollsPerTimeout = 4;

// Of a runtime's graphs. Nothing is ever given back to the runtime: the last owner of a block may
// be a thread of the runtime's own, which must not call it.
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
  uint64_t first;                // of its operations, in the graph
  Clock::time_point since = {};  // of a word that was seen
  size_t current = 0;            // the operation, at the last look; 0: none
  uint64_t replays = 0;          // of the graph, when this one was seen to begin
};

// Owned by the graph, too.
struct GraphReplayMonitor::MonitoredGraph : gpu::GraphLifetime {
  explicit MonitoredGraph(gpu::CaptureId id) : id(id) {}
  const gpu::CaptureId id;
  std::vector<std::shared_ptr<void>> chunks;
  size_t words = 0;  // taken of them
  std::vector<OperationChain> chains;
  uint64_t replays = 0;        // that were seen to begin
  gpu::GraphMarker last;       // of the last run
  bool may_still_run = false;  // the last run: its last operation has ended
};

GraphReplayMonitor::GraphReplayMonitor(std::shared_ptr<NcclDevice> device, bool wanted,
                                       std::chrono::milliseconds period)
    : device_(std::move(device)), period_(period) {
  if (!wanted)
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
    const LateReplay facts{call.op, call.timeout, call.has_own_timeout, capture};
    if (std::exchange(graph->may_still_run, false)) {
      // The mark of the end before becomes that of this beginning, if nothing is between them. An
      // error of that costs no more than another mark.
      auto& run = graph->chains.back();
      run.operations.push_back(facts);
      bool goes_on = false;
      marks_->change(stream, graph->last, value_of(run.operations.size()), &goes_on);
      if (goes_on) return graph;
      run.operations.pop_back();
    }
    const auto first = graph->chains.empty()
                           ? 0
                           : graph->chains.back().first + graph->chains.back().operations.size();
    graph->chains.push_back({allocate_word(*graph), {facts}, stream, first});
    const int code =
        marks_->add(stream, nullptr, graph->chains.back().word, value_of(1), &graph->last);
    if (code == gpu::kSuccess) return graph;
    graph->chains.pop_back();
    throw CommError(Errc::kVendor, "a graph takes no mark: error " + std::to_string(code));
  } catch (const std::exception& e) {
    if (!std::exchange(has_warned_, true))
      base::log(base::LogLevel::kWarning,
                "communicator '" + call.comm +
                    "': replays of a graph are not watched for timeouts: " + e.what());
  }
  return nullptr;
}

void GraphReplayMonitor::end(TrackedOperation& begun, gpu::NativeStream stream) noexcept {
  if (begun == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    // Also behind the mark before: that runs beside the operation, and must not come last.
    begun->may_still_run =
        marks_->add(stream, &begun->last, begun->last.word, kIdle, &begun->last) == gpu::kSuccess;
    if (begun->may_still_run) return begun.reset();
  }
  discard(begun);
}

void GraphReplayMonitor::discard(TrackedOperation& begun) noexcept {
  if (begun == nullptr) return;
  // It would look as if it never ended. A look leaves numbers alone that the run has not.
  const std::lock_guard lock(mutex_);
  begun->chains.back().operations.pop_back();
  begun.reset();
}

std::chrono::milliseconds GraphReplayMonitor::timeout_of(
    const LateReplay& operation) const noexcept {
  const auto now = default_timeout_.load();
  return operation.has_own_timeout || now.count() == 0 ? operation.timeout : now;
}

// The word has changed since the last look, to that of operation `number`; 0: of none.
void GraphReplayMonitor::track(MonitoredGraph& graph, OperationChain& run, size_t number) {
  const auto before = std::exchange(run.current, number);
  const auto tell = [&](size_t operation, bool begins) {
    if (is_collecting_)
      events_.push_back(
          {graph.id, graph.replays - 1, run.stream, run.first + operation - 1, begins});
  };
  const auto pass = [&](size_t from, size_t to) {
    for (auto operation = from; operation < to; ++operation) {
      tell(operation, true);
      tell(operation, false);
    }
  };
  const auto all = run.operations.size() + 1;
  const bool goes_on = before != 0 && (number == 0 || number > before);
  if (before != 0) tell(before, false);
  if (before != 0 && !goes_on) pass(before + 1, all);
  if (!goes_on) {
    // A run that was in this replay is in the next one.
    if (run.replays == graph.replays) ++graph.replays;
    run.replays = graph.replays;
  }
  pass(goes_on ? before + 1 : 1, number == 0 ? all : number);
  if (number != 0) tell(number, true);
}

void GraphReplayMonitor::deliver_events(const std::function<void(const ReplayEvent&)>& told) {
  std::unique_lock lock(mutex_);
  if (std::exchange(is_delivering_, true)) return;
  while (!events_.empty()) {
    const auto events = std::exchange(events_, {});
    lock.unlock();
    for (const auto& event : events) told(event);
    lock.lock();
  }
  is_delivering_ = false;
}

GraphReplayMonitor::PollResult GraphReplayMonitor::poll(Clock::time_point now) noexcept {
  PollResult seen;
  if (!is_watching()) return seen;
  const std::lock_guard lock(mutex_);
  if (now < next_poll_) return seen;
  std::erase_if(monitored_, [](const auto& graph) { return graph->is_destroyed.load(); });
  graphs_.store(monitored_.size());
  auto period = period_;
  for (const auto& graph : monitored_)
    for (auto& run : graph->chains) {
      for (const auto& operation : run.operations)
        period = std::min(period, timeout_of(operation) / kPollsPerTimeout);
      const std::atomic_ref word(*run.word);
      auto value = word.load();
      if (number_of(value) > run.operations.size()) continue;
      if ((value & kPolled) == 0) {
        if (!word.compare_exchange_strong(value, value | kPolled)) continue;
        run.since = now;
        track(*graph, run, number_of(value));
        continue;
      }
      if (number_of(value) == 0) continue;
      seen.is_running = true;
      auto operation = run.operations[number_of(value) - 1];
      operation.timeout = timeout_of(operation);
      if (now - run.since > operation.timeout && !seen.late) seen.late = operation;
    }
  seen.has_events = !events_.empty();
  next_poll_ = now + period;
  return seen;
}

}  // namespace torch::comms::nccl
