#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "gpu/cpu_stream.hpp"
#include "gpu/graph_markers.hpp"

// The runtime functions for host memory. They return CUDA's error numbers.
namespace torch::comms::gpu {
namespace {

constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kCaptureUnsupported = 900;
constexpr int kCaptureUnjoined = 904;
constexpr int kCaptureIsolation = 905;
constexpr int kCapturedEvent = 907;

thread_local NativeStream current_stream = nullptr;
thread_local CpuCallCounts calls;
std::atomic<CaptureId> last_capture{0};

CpuStream* stream_of(NativeStream stream) { return static_cast<CpuStream*>(stream); }
CpuEvent* event_of(NativeEvent event) { return static_cast<CpuEvent*>(event); }
std::shared_ptr<CpuGraph> captured_by(NativeStream stream) {
  return stream == nullptr ? nullptr : stream_of(stream)->capture();
}

const char* error_text(int code) {
  switch (code) {
    case kSuccess:
      return "no error";
    case kInvalidValue:
      return "invalid argument";
    case kOutOfMemory:
      return "out of memory";
    case kNotReady:
      return "not ready";
    case kCaptureUnsupported:
      return "not permitted on a stream that is capturing";
    case kCaptureUnjoined:
      return "the capture has work of a stream that its first stream does not wait for";
    case kCaptureIsolation:
      return "a dependency would cross the border of a capture";
    case kCapturedEvent:
      return "not permitted on an event of a capture";
    default:
      return "unknown error";
  }
}

int no_error() { return kSuccess; }
int count_devices(int* count) {
  *count = 1;
  return kSuccess;
}
int get_device(int* index) {
  ++calls.devices;
  *index = 0;
  return kSuccess;
}
int set_device(int index) {
  ++calls.devices;
  return index == 0 ? kSuccess : kInvalidValue;
}
int priorities(int* least, int* greatest) {
  *least = 0;
  *greatest = -1;
  return kSuccess;
}

int create_stream(NativeStream* stream, unsigned, int priority) {
  if (priority < 0) ++calls.high_priority_streams;
  *stream = new CpuStream();
  return kSuccess;
}
int destroy_stream(NativeStream stream) {
  delete stream_of(stream);
  return kSuccess;
}
int synchronize_stream(NativeStream stream) {
  if (stream == nullptr) return kSuccess;
  if (stream_of(stream)->capture()) return kCaptureUnsupported;
  stream_of(stream)->drain();
  return kSuccess;
}

int wait_event(NativeStream stream, NativeEvent event, unsigned) {
  ++calls.waits;
  const auto record = event_of(event)->record();
  const auto capture = captured_by(stream);
  if (record.is_captured) {
    const auto graph = record.graph.lock();
    if (stream == nullptr || !graph || (capture && capture != graph)) return kCaptureIsolation;
    graph->join(stream_of(stream), record.clock);
    stream_of(stream)->set_capture(graph);
    return kSuccess;
  }
  if (!record.latch) return kSuccess;
  if (capture) return kCaptureIsolation;
  cpu_launch(stream, [mark = record.latch] { mark->wait(); });
  return kSuccess;
}

int capture_info(NativeStream stream, int* status, CaptureId* id, void*, void*, void*, void*) {
  ++calls.captures;
  const auto graph = captured_by(stream);
  *status = graph ? 1 : 0;
  *id = graph ? graph->id : 0;
  return kSuccess;
}
int exchange_mode(int*) { return kSuccess; }

int launch_function(NativeStream stream, void (*function)(void*), void* argument) {
  cpu_launch(stream, [=] { function(argument); });
  return kSuccess;
}

int create_event(NativeEvent* event, unsigned) {
  *event = new CpuEvent();
  return kSuccess;
}
int destroy_event(NativeEvent event) {
  delete event_of(event);
  return kSuccess;
}
int record_event(NativeEvent event, NativeStream stream) {
  ++calls.records;
  if (stream == nullptr) {
    event_of(event)->set({});
    return kSuccess;
  }
  if (const auto graph = stream_of(stream)->capture()) {
    event_of(event)->set({nullptr, true, graph, graph->clock(stream_of(stream))});
    return kSuccess;
  }
  auto mark = std::make_shared<CpuLatch>();
  event_of(event)->set({mark});
  cpu_launch(stream, [mark] { mark->set(); });
  return kSuccess;
}
int query_event(NativeEvent event) {
  const auto record = event_of(event)->record();
  if (record.is_captured) return kCapturedEvent;
  return !record.latch || record.latch->is_set() ? kSuccess : kNotReady;
}
int synchronize_event(NativeEvent event) {
  const auto record = event_of(event)->record();
  if (record.is_captured) return kCapturedEvent;
  if (record.latch) record.latch->wait();
  return kSuccess;
}

int copy(void* to, const void* from, size_t size_bytes, int, NativeStream stream) {
  cpu_launch(stream, [=] {
    if (size_bytes > 0) std::memcpy(to, from, size_bytes);
  });
  return kSuccess;
}
int allocate(void** at, size_t size_bytes, unsigned) {
  ++calls.pinned;
  *at = std::malloc(size_bytes == 0 ? 1 : size_bytes);
  return *at == nullptr ? kOutOfMemory : kSuccess;
}
int release(void* at) {
  std::free(at);
  return kSuccess;
}

decltype(GraphMarker::position) place_in(CpuGraph& graph, NativeStream stream) {
  const auto clock = graph.clock(stream_of(stream));
  return {clock.begin(), clock.end()};
}
int add_mark(NativeStream stream, const GraphMarker*, uint32_t* word, uint32_t value,
             GraphMarker* result) {
  const auto graph = captured_by(stream);
  if (!graph) return kInvalidValue;
  ++calls.graph_markers;
  const auto written = std::make_shared<uint32_t>(value);
  // Tasks run in the order in which they were added, so the marker needs no dependencies.
  graph->add_unordered([=] { std::atomic_ref(*word).store(*written); });
  *result = {written.get(), word, place_in(*graph, stream)};
  return kSuccess;
}
int change_mark(NativeStream stream, const GraphMarker& mark, uint32_t value, bool* done) {
  const auto graph = captured_by(stream);
  if (!graph) return kInvalidValue;
  *done = place_in(*graph, stream) == mark.position;
  if (*done) *static_cast<uint32_t*>(mark.node) = value;
  return kSuccess;
}
int wait_in_graph(NativeStream stream, NativeEvent event) {
  const auto graph = captured_by(stream);
  if (!graph) return kInvalidValue;
  ++calls.graph_markers;
  graph->add_wait(stream_of(stream), event_of(event));
  return kSuccess;
}
int record_in_graph(NativeStream stream, NativeEvent event, GraphMarker* mark) {
  const auto graph = captured_by(stream);
  if (!graph) return kInvalidValue;
  ++calls.graph_markers;
  graph->move_record(event_of(event), &mark->node);
  mark->position = place_in(*graph, stream);
  return kSuccess;
}
int keep_with_graph(NativeStream stream, void (*release)(void*), void* argument) {
  const auto graph = captured_by(stream);
  if (!graph) return kInvalidValue;
  graph->retain({argument, release});
  return kSuccess;
}

int memory_info(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = kCpuTotalBytes;
  *free_bytes = kCpuTotalBytes - cpu_used_bytes();
  return kSuccess;
}

[[noreturn]] void fail(const char* call, int code) {
  throw CommError(Errc::kVendor, std::string(call) + ": " + error_text(code));
}

}  // namespace

const GraphMarkerTable* cpu_graph_markers() noexcept {
  static constexpr GraphMarkerTable kMarks{add_mark, change_mark, wait_in_graph, record_in_graph,
                                           keep_with_graph};
  return &kMarks;
}

const RuntimeTable& cpu_table() noexcept {
  static const RuntimeTable table{
      .GetErrorString = error_text,
      .GetLastError = no_error,
      .GetDeviceCount = count_devices,
      .GetDevice = get_device,
      .SetDevice = set_device,
      .DeviceGetStreamPriorityRange = priorities,
      .StreamCreateWithPriority = create_stream,
      .StreamDestroy = destroy_stream,
      .StreamSynchronize = synchronize_stream,
      .StreamWaitEvent = wait_event,
      .StreamGetCaptureInfo = capture_info,
      .ThreadExchangeStreamCaptureMode = exchange_mode,
      .LaunchHostFunc = launch_function,
      .EventCreateWithFlags = create_event,
      .EventDestroy = destroy_event,
      .EventRecord = record_event,
      .EventQuery = query_event,
      .EventSynchronize = synchronize_event,
      .MemcpyAsync = copy,
      .HostAlloc = allocate,
      .FreeHost = release,
      .MemGetInfo = memory_info,
  };
  return table;
}

void cpu_launch(NativeStream stream, std::function<void()> work) {
  if (stream == nullptr) return work();
  stream_of(stream)->launch(std::move(work));
}

std::atomic<size_t>& cpu_used_bytes() noexcept {
  static std::atomic<size_t> taken{0};
  return taken;
}

CpuCallCounts& cpu_call_counts() noexcept { return calls; }

NativeStream cpu_current_stream() noexcept { return current_stream; }
CpuStreamGuard::CpuStreamGuard(NativeStream stream) noexcept
    : previous_(std::exchange(current_stream, stream)) {}
CpuStreamGuard::~CpuStreamGuard() { current_stream = previous_; }

void cpu_begin_capture(NativeStream stream) {
  if (stream == nullptr || stream_of(stream)->capture()) fail("begin capture", kCaptureUnsupported);
  auto graph = std::make_shared<CpuGraph>(++last_capture);
  graph->join(stream_of(stream), {});
  stream_of(stream)->set_capture(std::move(graph));
}

std::shared_ptr<CpuGraph> cpu_end_capture(NativeStream stream) {
  auto graph = stream_of(stream)->capture();
  if (!graph) fail("end capture", kInvalidValue);
  if (!graph->end(stream_of(stream))) fail("end capture", kCaptureUnjoined);
  return graph;
}

void cpu_launch_graph(const std::shared_ptr<CpuGraph>& graph, NativeStream stream) {
  cpu_launch(stream, graph->launch(graph));
}

}  // namespace torch::comms::gpu
