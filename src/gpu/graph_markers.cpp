#include "gpu/graph_markers.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "gpu/cuda_driver.hpp"
#include "gpu/cuda_library.hpp"

namespace torch::comms::gpu {
namespace {

using namespace cuda;

constexpr int kInvalidValue = 1;

struct CudaGraphFunctions {
#define TC_FIELD(name, ...)           \
  using name##Function = __VA_ARGS__; \
  name##Function* name = nullptr;
  TC_CUDA_DRIVER_SYMBOLS(TC_FIELD)
#undef TC_FIELD
  std::string missing;  // the first missing function; "": none
};

const CudaGraphFunctions& driver() {
  static const CudaGraphFunctions bound = [] {
    CudaGraphFunctions functions;
#define TC_BIND(name, ...)                                                  \
  if (functions.missing.empty())                                            \
    functions.name = reinterpret_cast<CudaGraphFunctions::name##Function*>( \
        cuda_driver_function(#name, functions.missing));
    TC_CUDA_DRIVER_SYMBOLS(TC_BIND)
#undef TC_BIND
    return functions;
  }();
  return bound;
}

// Returns in `graph` the graph that `stream` is capturing, and in `before` the dependencies of its
// next node.
int capture_at(NativeStream stream, void*& graph, std::vector<void*>& before) {
  int status = 0;
  uint64_t id = 0;
  void* const* dependencies = nullptr;
  size_t count = 0;
  if (const int code =
          driver().StreamGetCaptureInfo_v2(stream, &status, &id, &graph, &dependencies, &count))
    return code;
  if (status != kCaptureActive) return kInvalidValue;
  before.assign(dependencies, dependencies + count);
  std::ranges::sort(before, std::less<void*>());
  return kSuccess;
}

// Calls `use` with the parameters of a node that writes `value` to `word`.
template <class Use>
int with_write(uint32_t* word, uint32_t value, const Use& use) {
  void* context = nullptr;
  if (const int code = driver().CtxGetCurrent(&context)) return code;
  // Pinned memory has the same address on host and device.
  WriteValue operation;
  operation.address = reinterpret_cast<uint64_t>(word);
  operation.value = value;
  return use(BatchMemOpNode{context, 1, &operation, 0});
}

int add(NativeStream stream, const GraphMarker* after, uint32_t* word, uint32_t value,
        GraphMarker* result) {
  void* graph = nullptr;
  std::vector<void*> before;
  if (const int code = capture_at(stream, graph, before)) return code;
  GraphMarker mark{nullptr, word, {}};
  for (auto* const node : before) mark.position.emplace_back(node, 0);
  if (after != nullptr) before.push_back(after->node);
  const int code = with_write(word, value, [&](const BatchMemOpNode& node) {
    return driver().GraphAddBatchMemOpNode(&mark.node, graph, before.data(), before.size(), &node);
  });
  if (code == kSuccess) *result = std::move(mark);
  return code;
}

int change(NativeStream stream, const GraphMarker& mark, uint32_t value, bool* done) {
  *done = false;
  void* graph = nullptr;
  std::vector<void*> before;
  if (const int code = capture_at(stream, graph, before)) return code;
  if (!std::ranges::equal(before, mark.position, {}, {}, &std::pair<void*, size_t>::first))
    return kSuccess;
  const int code = with_write(mark.word, value, [&](const BatchMemOpNode& node) {
    return driver().GraphBatchMemOpNodeSetParams(mark.node, &node);
  });
  *done = code == kSuccess;
  return code;
}

int wait(NativeStream stream, NativeEvent event) {
  return driver().StreamWaitEvent(stream, event, kWaitExternal);
}

int record(NativeStream stream, NativeEvent event, GraphMarker* mark) {
  void* graph = nullptr;
  std::vector<void*> now;
  if (const int code = capture_at(stream, graph, now)) return code;
  GraphMarker moved{mark->node, nullptr, {}};
  for (auto* const node : now) moved.position.emplace_back(node, 0);
  if (mark->node == nullptr) {
    if (const int code =
            driver().GraphAddEventRecordNode(&moved.node, graph, now.data(), now.size(), event))
      return code;
  } else {
    // Nodes cannot be removed from a capture, so this node gets new dependencies.
    std::vector<void*> before;
    before.reserve(mark->position.size());
    for (const auto& [node, part] : mark->position) before.push_back(node);
    const std::vector<void*> to(std::max(before.size(), now.size()), mark->node);
    if (const int code =
            driver().GraphRemoveDependencies(graph, before.data(), to.data(), before.size()))
      return code;
    if (const int code = driver().GraphAddDependencies(graph, now.data(), to.data(), now.size()))
      return code;
  }
  *mark = std::move(moved);
  return kSuccess;
}

int keep_by_graph(NativeStream stream, void (*release)(void*), void* argument) {
  void *graph = nullptr, *object = nullptr;
  std::vector<void*> before;
  if (const int code = capture_at(stream, graph, before)) return code;
  struct Holder {
    void (*release)(void*);
    void* argument;
  };
  const auto destroy = [](void* at) {
    auto* const holder = static_cast<Holder*>(at);
    if (holder->release != nullptr) holder->release(holder->argument);
    delete holder;
  };
  auto* const holder = new Holder{release, argument};
  if (const int code = driver().UserObjectCreate(&object, holder, destroy, 1, kNoDestructorSync)) {
    delete holder;
    return code;
  }
  const int code = driver().GraphRetainUserObject(graph, object, 1, kMoveReferences);
  if (code != kSuccess) {
    holder->release = nullptr;
    driver().UserObjectRelease(object, 1);
  }
  return code;
}

}  // namespace

const GraphMarkerTable* cuda_graph_markers(std::string& why) {
  static constexpr GraphMarkerTable kMarks{add, change, wait, record, keep_by_graph};
  why = driver().missing;
  return why.empty() ? &kMarks : nullptr;
}

void retain_with_graph(const GraphMarkerTable& marks, NativeStream stream,
                       std::shared_ptr<GraphLifetime> life) {
  auto shared = std::make_unique<std::shared_ptr<GraphLifetime>>(std::move(life));
  const auto release = [](void* argument) {
    const std::unique_ptr<std::shared_ptr<GraphLifetime>> it(
        static_cast<std::shared_ptr<GraphLifetime>*>(argument));
    (*it)->is_destroyed.store(true);
  };
  if (const int code = marks.retain(stream, release, shared.get()))
    throw CommError(
        Errc::kVendor,
        "cannot attach the communicator's state to the CUDA graph being captured: error " +
            std::to_string(code));
  static_cast<void>(shared.release());  // the graph owns it
}

const GraphMarkerTable* graph_markers_of(const Runtime& runtime, std::string* why) {
  std::string reason;
  const GraphMarkerTable* marks = nullptr;
  if (runtime.name() == Runtime::cpu().name())
    marks = cpu_graph_markers();
  else if (runtime.name() == kCuda.name)
    marks = cuda_graph_markers(reason);
  else
    reason = "graph markers are not supported for the " + std::string(runtime.name()) +
             " runtime in this version of torchcomms";
  if (why != nullptr) *why = reason;
  return marks;
}

}  // namespace torch::comms::gpu
