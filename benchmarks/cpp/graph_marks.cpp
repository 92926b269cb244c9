// What it costs a CUDA graph to tell how far its replays are: a chain of kernels as short as small
// operations are, with marks beside or between them, in turns.
//   build/dev/bench_graph_marks      needs a GPU, and of CUDA its driver alone

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gpu/cuda_library.hpp"
#include "gpu/graph_markers.hpp"

namespace {

using namespace torch::comms::gpu;
using Clock = std::chrono::steady_clock;

constexpr int kOperations = 50;  // in a graph
constexpr int kLaunches = 300;
constexpr uint64_t kCycles[] = {1'000, 8'000, 40'000};  // of a kernel

// A kernel of one thread that takes so many cycles.
constexpr const char* kSpin = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 cycles)
{
  .reg .u64 %rd<5>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [cycles];
  mov.u64 %rd2, %clock64;
AGAIN:
  mov.u64 %rd3, %clock64;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra AGAIN;
  ret;
}
)";

// What captures and launches need of the driver.
#define TC_FUNCTIONS(FUNCTION)                                                                  \
  FUNCTION(Init, int(unsigned flags))                                                           \
  FUNCTION(DevicePrimaryCtxRetain, int(void** context, int device))                             \
  FUNCTION(CtxSetCurrent, int(void* context))                                                   \
  FUNCTION(ModuleLoadData, int(void** module, const void* image))                               \
  FUNCTION(ModuleGetFunction, int(void** function, void* module, const char* name))             \
  FUNCTION(MemHostAlloc, int(void** at, size_t size_bytes, unsigned flags))                     \
  FUNCTION(StreamCreate, int(void** stream, unsigned flags))                                    \
  FUNCTION(StreamSynchronize, int(void* stream))                                                \
  FUNCTION(StreamBeginCapture_v2, int(void* stream, int mode))                                  \
  FUNCTION(StreamUpdateCaptureDependencies,                                                     \
           int(void* stream, void** nodes, size_t count, unsigned flags))                       \
  FUNCTION(StreamEndCapture, int(void* stream, void** graph))                                   \
  FUNCTION(LaunchKernel, int(void* function, unsigned, unsigned, unsigned, unsigned, unsigned,  \
                             unsigned, unsigned, void* stream, void** parameters, void** more)) \
  FUNCTION(GraphGetNodes, int(void* graph, void** nodes, size_t* count))                        \
  FUNCTION(GraphInstantiateWithFlags, int(void** exec, void* graph, unsigned long long flags))  \
  FUNCTION(GraphLaunch, int(void* exec, void* stream))

constexpr int kRelaxed = 2;
constexpr unsigned kNonBlocking = 1, kInsteadOfThose = 1;

struct Cuda {
#define TC_FIELD(name, ...)           \
  using name##Function = __VA_ARGS__; \
  name##Function* name = nullptr;
  TC_FUNCTIONS(TC_FIELD)
#undef TC_FIELD
  std::string missing;
};

Cuda bind() {
  Cuda table;
#define TC_BIND(name, ...)   \
  if (table.missing.empty()) \
    table.name =             \
        reinterpret_cast<Cuda::name##Function*>(cuda_driver_function(#name, table.missing));
  TC_FUNCTIONS(TC_BIND)
#undef TC_BIND
  return table;
}

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "bench_graph_marks: %s\n", why.c_str());
  std::exit(2);
}
void check(int code, const char* what) {
  if (code != 0) fail(std::string(what) + ": error " + std::to_string(code) + " of CUDA");
}

// A stream in a capture, its kernel, and words for marks.
struct Capture {
  const Cuda& cuda;
  const GraphMarkerTable& marks;
  void* stream;
  void* kernel;
  uint32_t* marker_words;
  uint64_t cycles;

  void operation() const {
    uint64_t kernel_cycles = cycles;
    void* parameters[] = {&kernel_cycles};
    check(cuda.LaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr), "launch");
  }
  GraphMarker add(const GraphMarker* after, uint32_t* word, uint32_t value) const {
    GraphMarker mark;
    check(marks.add(stream, after, word, value, &mark), "add");
    return mark;
  }
};

void plain(const Capture& capture) {
  for (int i = 0; i < kOperations; ++i) capture.operation();
}
void two_beside_each(const Capture& capture) {
  for (int i = 0; i < kOperations; ++i) {
    const auto begun = capture.add(nullptr, capture.marker_words + i, 1);
    capture.operation();
    capture.add(&begun, capture.marker_words + i, 0);
  }
}
void one_beside_each(const Capture& capture) {
  auto last = capture.add(nullptr, capture.marker_words, 2);
  for (uint32_t i = 0; i < kOperations; ++i) {
    if (i > 0) {
      bool done = false;
      check(capture.marks.change(capture.stream, last, 2 * i + 2, &done), "change");
      if (!done) fail("a mark did not change");
    }
    capture.operation();
    last = capture.add(&last, capture.marker_words, 0);
  }
}
// The stream's work waits for it.
void one_between(const Capture& capture) {
  const auto add = [&](uint32_t value) {
    auto mark = capture.add(nullptr, capture.marker_words, value);
    check(capture.cuda.StreamUpdateCaptureDependencies(capture.stream, &mark.node, 1,
                                                       kInsteadOfThose),
          "wait for a mark");
  };
  for (uint32_t i = 0; i < kOperations; ++i) {
    add(2 * i + 2);
    capture.operation();
  }
  add(0);
}

struct Variant {
  const char* name;
  void (*capture)(const Capture&);
  void* exec = nullptr;
  size_t nodes = 0;
  std::vector<double> us = {};
};

double launch_us(const Cuda& cuda, void* exec, void* stream) {
  const auto begin = Clock::now();
  check(cuda.GraphLaunch(exec, stream), "launch of a graph");
  check(cuda.StreamSynchronize(stream), "a launch");
  const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
  return took.count() / kOperations;
}

void measure(Capture capture) {
  const auto& cuda = capture.cuda;
  Variant variants[] = {{"no marks", plain},
                        {"two beside each operation", two_beside_each},
                        {"one beside each, as operations in a row have", one_beside_each},
                        {"one between operations", one_between}};
  for (auto& variant : variants) {
    void* graph = nullptr;
    check(cuda.StreamBeginCapture_v2(capture.stream, kRelaxed), "begin of a capture");
    variant.capture(capture);
    check(cuda.StreamEndCapture(capture.stream, &graph), "end of a capture");
    check(cuda.GraphGetNodes(graph, nullptr, &variant.nodes), "count of nodes");
    check(cuda.GraphInstantiateWithFlags(&variant.exec, graph, 0), "instantiation");
  }
  for (int round = -kLaunches / 10; round < kLaunches; ++round)
    for (auto& variant : variants) {
      std::fill_n(capture.marker_words, kOperations, 99);
      const double us = launch_us(cuda, variant.exec, capture.stream);
      if (variant.capture != plain && capture.marker_words[0] != 0) fail("a mark was not written");
      if (round >= 0) variant.us.push_back(us);
    }
  for (auto& variant : variants) {
    std::ranges::sort(variant.us);
    const auto at = [](const Variant& one, int percent) {
      return one.us[one.us.size() * percent / 100];
    };
    std::printf("%-46s %6zu %8.2f %8.2f %8.2f\n", variant.name, variant.nodes, at(variant, 10),
                at(variant, 50), at(variant, 50) - at(variants[0], 50));
  }
}

}  // namespace

int main() {
  const auto cuda = bind();
  if (!cuda.missing.empty()) fail(cuda.missing);
  std::string why;
  const auto* const marks = cuda_graph_markers(why);
  if (marks == nullptr) fail(why);
  void *context = nullptr, *module = nullptr, *kernel = nullptr, *stream = nullptr,
       *marker_words = nullptr;
  check(cuda.Init(0), "start");
  check(cuda.DevicePrimaryCtxRetain(&context, 0), "context");
  check(cuda.CtxSetCurrent(context), "context");
  check(cuda.ModuleLoadData(&module, kSpin), "kernel");
  check(cuda.ModuleGetFunction(&kernel, module, "spin"), "kernel");
  check(cuda.StreamCreate(&stream, kNonBlocking), "stream");
  check(cuda.MemHostAlloc(&marker_words, kOperations * sizeof(uint32_t), 0), "pinned memory");
  for (const auto cycles : kCycles) {
    std::printf("%d kernels of %llu cycles, a graph; us an operation\n", kOperations,
                static_cast<unsigned long long>(cycles));
    std::printf("%-46s %6s %8s %8s %8s\n", "marks", "nodes", "p10", "p50", "more");
    measure({cuda, *marks, stream, kernel, static_cast<uint32_t*>(marker_words), cycles});
  }
}
