#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include <torchcomms/base/export.hpp>

#include "gpu/runtime_symbols.hpp"

// The runtime row for host memory: what a GPU runtime does, done by threads of this process, so
// that code for GPUs runs and is tested where there is none. Handles are those of the table.
//
// A stream is a thread and its queue. The default stream (null) is the calling thread itself: what
// is launched on it has run when the call returns, and waiting for an event on it blocks. A stream
// that is destroyed finishes what it has. Captures work as on a GPU: what is launched on a
// capturing stream, or on one that waits for an event of the capture, runs when the graph is
// launched.
namespace torch::comms::gpu {

// The table whose functions do that.
const RuntimeTable& cpu_table() noexcept;

// Runs `work` on `stream` after all that was launched there before.
TC_API void cpu_launch(NativeStream stream, std::function<void()> work);

// The stream that the calling thread works on, as cudaStreamPerThread or torch's current stream is
// on a GPU; null, the thread itself, unless one was set.
TC_API NativeStream cpu_current_stream() noexcept;
class TC_API CpuStreamGuard {
 public:
  explicit CpuStreamGuard(NativeStream stream) noexcept;
  ~CpuStreamGuard();
  CpuStreamGuard(const CpuStreamGuard&) = delete;
  CpuStreamGuard& operator=(const CpuStreamGuard&) = delete;

 private:
  NativeStream previous_;
};

// What the calling thread has asked the runtime for so far: each costs time on a GPU.
struct CpuCallCounts {
  size_t captures = 0, records = 0, waits = 0;
  size_t devices = 0;                // asked for, or set
  size_t pinned = 0;                 // blocks of memory made
  size_t graph_markers = 0;          // of graphs
  size_t high_priority_streams = 0;  // streams of high priority, which is none here
};
TC_API CpuCallCounts& cpu_call_counts() noexcept;

// What MemGetInfo tells: nothing of the host's own memory, so that a test can say what is taken.
TC_API std::atomic<size_t>& cpu_used_bytes() noexcept;
inline constexpr size_t kCpuTotalBytes = size_t{1} << 40;

// What was captured; may be launched any number of times, on any stream.
class CpuGraph;
void cpu_begin_capture(NativeStream stream);
// Throws CommError(kVendor) if work of another stream was captured that this one does not wait for.
std::shared_ptr<CpuGraph> cpu_end_capture(NativeStream stream);
void cpu_launch_graph(const std::shared_ptr<CpuGraph>& graph, NativeStream stream);

}  // namespace torch::comms::gpu
