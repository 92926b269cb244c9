#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include <torchcomms/base/export.hpp>

#include "gpu/runtime_symbols.hpp"

// The runtime for host memory: threads of this process do the work of a GPU runtime, so that code
// for GPUs can run and be tested without a GPU. Handles are those of RuntimeTable.
//
// A stream is a thread and its queue. The default stream (null) is the calling thread itself: work
// launched on it has run when the call returns, and waiting for an event on it blocks. A destroyed
// stream finishes its queue, but the destruction does not wait for that. Captures work as on a GPU.
// Work on a capturing stream, or on a stream that waits for an event of the capture, runs when the
// graph is launched. A stream must not be destroyed during a capture that it takes part in.
namespace torch::comms::gpu {

// Returns the table of the host memory runtime.
const RuntimeTable& cpu_table() noexcept;

// Runs `work` on `stream` after all earlier work there. If the stream captures, `work` runs in each
// launch of the graph. `work` must not throw on the thread of a stream.
TC_API void cpu_launch(NativeStream stream, std::function<void()> work);

// Returns the current stream of the calling thread, as torch's current stream on a GPU. Null, the
// thread itself, unless a CpuStreamGuard set one.
TC_API NativeStream cpu_current_stream() noexcept;
// Sets cpu_current_stream() of the calling thread for its scope.
class TC_API CpuStreamGuard {
 public:
  explicit CpuStreamGuard(NativeStream stream) noexcept;
  ~CpuStreamGuard();
  CpuStreamGuard(const CpuStreamGuard&) = delete;
  CpuStreamGuard& operator=(const CpuStreamGuard&) = delete;

 private:
  NativeStream previous_;
};

// Counts of the runtime calls of the calling thread; on a GPU each of them costs time.
struct CpuCallCounts {
  size_t captures = 0, records = 0, waits = 0;
  size_t devices = 0;                // get or set
  size_t pinned = 0;                 // pinned blocks allocated
  size_t graph_markers = 0;          // nodes added to graphs
  size_t high_priority_streams = 0;  // streams created with high priority, which has no effect here
};
TC_API CpuCallCounts& cpu_call_counts() noexcept;

// The used memory that MemGetInfo reports, at most kCpuTotalBytes. It does not measure the host's
// memory, so that a test can set it.
TC_API std::atomic<size_t>& cpu_used_bytes() noexcept;
inline constexpr size_t kCpuTotalBytes = size_t{1} << 40;

// The result of a capture; it may be launched any number of times, on any stream.
class CpuGraph;
// Throws: CommError(kVendor) for the default stream, or if the stream captures already.
void cpu_begin_capture(NativeStream stream);
// Ends the capture that began on `stream`, which must not be the default stream.
// Throws: CommError(kVendor) if the stream does not capture. Also if the graph has work of another
// stream that `stream` does not wait for; the capture has ended then.
std::shared_ptr<CpuGraph> cpu_end_capture(NativeStream stream);
// Enqueues one run of the graph, which stays alive until the run is done.
void cpu_launch_graph(const std::shared_ptr<CpuGraph>& graph, NativeStream stream);

}  // namespace torch::comms::gpu
