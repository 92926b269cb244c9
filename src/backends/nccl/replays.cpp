#include "backends/nccl/replays.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.hpp"
#include "gpu/pinned_pool.hpp"

namespace torch::comms::nccl {
namespace {

// What a word says. The graph writes the first two, a look the third.
constexpr uint32_t kIdle = 0, kRunning = 1, kSeen = 3;
constexpr size_t kChunkBytes = 4096;
constexpr size_t kChunkWords = kChunkBytes / sizeof(uint32_t);
// A limit is looked at this often while it passes.
constexpr int kLooksPerLimit = 4;

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

// Owned by the graph, too.
struct Replays::Graph {
  struct Operation {
    uint32_t* word;
    Late facts;
    Clock::time_point since = {};  // of a word that is kSeen
  };
  explicit Graph(gpu::CaptureId id) : id(id) {}
  const gpu::CaptureId id;
  std::atomic<bool> is_gone{false};
  std::vector<std::shared_ptr<void>> chunks;
  size_t words = 0;  // taken of them
  std::vector<Operation> operations;
};

Replays::Replays(std::shared_ptr<Device> device, bool wanted, std::chrono::milliseconds period)
    : device_(std::move(device)), period_(period) {
  if (!wanted)
    why_not_ =
        "turned off by TORCHCOMM_NCCLX_GRAPH_TIMEOUT_MONITORING or hint enable_cuda_graph_support";
  else
    marks_ = gpu::graph_marks_of(device_->runtime(), &why_not_);
}

uint32_t* Replays::word_for(const Call& call, gpu::NativeStream stream, gpu::CaptureId capture) {
  auto found = std::ranges::find(all_, capture, [](const auto& graph) { return graph->id; });
  if (found == all_.end()) {
    auto graph = std::make_shared<Graph>(capture);
    auto shared = std::make_unique<std::shared_ptr<Graph>>(graph);
    const auto release = [](void* argument) {
      const std::unique_ptr<std::shared_ptr<Graph>> it(
          static_cast<std::shared_ptr<Graph>*>(argument));
      (*it)->is_gone.store(true);
    };
    if (const int code = marks_->keep(stream, release, shared.get()))
      throw CommError(Errc::kVendor, "a graph keeps nothing: error " + std::to_string(code));
    static_cast<void>(shared.release());  // the graph has it
    all_.push_back(std::move(graph));
    graphs_.store(all_.size());
    found = all_.end() - 1;
  }
  auto& graph = **found;
  const size_t place = graph.words++ % kChunkWords;
  if (place == 0) {
    const Device::Scope scope(*device_);
    graph.chunks.push_back(pool_of(device_->shared_runtime())->take(kChunkBytes));
    std::fill_n(static_cast<uint32_t*>(graph.chunks.back().get()), kChunkWords, kIdle);
  }
  auto* const word = static_cast<uint32_t*>(graph.chunks.back().get()) + place;
  graph.operations.push_back({word, {call.op, call.limit, call.limit_is_own, capture}});
  return word;
}

Replays::Mark Replays::begin(const Call& call, gpu::NativeStream stream,
                             gpu::CaptureId capture) noexcept {
  Mark mark;
  if (marks_ == nullptr || stopped_) return mark;
  try {
    const std::lock_guard lock(mutex_);
    auto* const word = word_for(call, stream, capture);
    if (const int code = marks_->write(stream, nullptr, word, kRunning, &mark.node))
      throw CommError(Errc::kVendor, "a graph takes no mark: error " + std::to_string(code));
    mark.word = word;
  } catch (const std::exception& e) {
    if (!std::exchange(complained_, true))
      base::log(base::LogLevel::kWarning,
                "communicator '" + call.comm +
                    "': replays of a graph are not watched for timeouts: " + e.what());
  }
  return mark;
}

void Replays::end(const Mark& mark, gpu::NativeStream stream) noexcept {
  if (mark.word == nullptr) return;
  void* node = nullptr;
  // Also behind the first write: it runs beside the operation, and must not come last.
  const int code = marks_->write(stream, mark.node, mark.word, kIdle, &node);
  if (code == gpu::kSuccess) return;
  // It would look as if it never ended.
  const std::lock_guard lock(mutex_);
  for (const auto& graph : all_)
    std::erase_if(graph->operations,
                  [&](const auto& operation) { return operation.word == mark.word; });
}

Replays::Seen Replays::look(Clock::time_point now) noexcept {
  Seen seen;
  if (!is_watching()) return seen;
  const std::lock_guard lock(mutex_);
  if (now < next_look_) return seen;
  std::erase_if(all_, [](const auto& graph) { return graph->is_gone.load(); });
  graphs_.store(all_.size());
  auto period = period_;
  for (const auto& graph : all_)
    for (auto& operation : graph->operations) {
      period = std::min(period, operation.facts.limit / kLooksPerLimit);
      const std::atomic_ref word(*operation.word);
      uint32_t value = kRunning;
      if (word.compare_exchange_strong(value, kSeen)) {
        operation.since = now;
        continue;
      }
      if (value != kSeen) continue;
      seen.running = true;
      if (now - operation.since > operation.facts.limit && !seen.late) seen.late = operation.facts;
    }
  next_look_ = now + period;
  return seen;
}

}  // namespace torch::comms::nccl
