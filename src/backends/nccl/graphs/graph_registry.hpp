#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/nccl/streams/nccl_device.hpp"
#include "gpu/graph_markers.hpp"

namespace torch::comms::nccl {

// The last operation of a sequence: its stream and its end event.
struct StreamMarker {
  gpu::NativeStream stream = nullptr;
  gpu::EventPool::Lease end;
};

// The CUDA graphs that hold operations of one communicator, for as long as they can be launched.
//
// After serialize_with_graphs(), no two operations of the communicator run concurrently, even if
// graphs are launched on several streams and calls are made meanwhile. A graph launch begins its
// first operation when everything is done that the host launched before. Calls begin when such
// graphs are done. So operations run in the order of the host's launches, which is the same on all
// ranks. This costs 0.8 us for each graph launch, and two events for each call while there are
// graphs. Vendor libraries do the same for their own operations.
//
// Threads: one caller at a time; has_live() and count(): any.
class GraphRegistry {
 public:
  explicit GraphRegistry(std::shared_ptr<NcclDevice> device);
  ~GraphRegistry();
  GraphRegistry(const GraphRegistry&) = delete;
  GraphRegistry& operator=(const GraphRegistry&) = delete;

  // Serializes all operations that follow, whatever came before.
  // Throws: CommError(kVendor).
  void serialize_with_graphs();

  // One graph.
  struct CapturedGraph {
    gpu::CaptureId id;
    uint64_t number;  // counts from 1
    std::shared_ptr<gpu::GraphLifetime> lifetime =
        nullptr;                       // null: the runtime does not report its end
    StreamMarker last_operation = {};  // its last operation; empty at first
    bool is_serialized = false;        // its launches wait for what was launched before
    gpu::GraphMarker done = {};
  };
  // Returns: the graph that `stream` is capturing. Call it before an operation is captured there.
  // `last` is the last operation outside of captures.
  // Throws: CommError(kVendor).
  std::shared_ptr<CapturedGraph> graph_of(gpu::NativeStream stream, gpu::CaptureId capture,
                                          const StreamMarker& last);
  // Call it after an operation of `graph` has been captured on `stream`.
  // Throws: CommError(kVendor).
  void after_captured_launch(CapturedGraph& graph, gpu::NativeStream stream);

  // Call these before and after the launch of an operation that is in no graph.
  void before_eager_launch(gpu::NativeStream stream);
  void after_eager_launch(gpu::NativeStream stream);

  // True if some graph may still be launched, as far as is known.
  bool has_live() noexcept { return has_live({}); }
  // True if this holds for a graph whose number is in the range (after, up_to].
  struct GraphRange {
    uint64_t after = 0, up_to = std::numeric_limits<uint64_t>::max();
  };
  bool has_live(const GraphRange& range) noexcept;
  // Returns: how many graphs have been registered so far.
  uint64_t count() noexcept;

 private:
  void remove_destroyed() noexcept;
  // Makes what `stream` captures next wait for everything that was launched before the graph.
  void make_serialized(CapturedGraph& graph, gpu::NativeStream stream, const StreamMarker& last);

  const std::shared_ptr<NcclDevice> device_;
  const gpu::GraphMarkerTable* const marks_;  // null: the runtime does not report a graph's end
  gpu::EventPool::Lease done_;      // with serialize_with_graphs(): recorded after each launch
  bool may_have_recorded_ = false;  // graphs may have recorded done_ since the last call did
  std::mutex mutex_;                // guards all members below
  uint64_t count_ = 0;
  std::vector<std::shared_ptr<CapturedGraph>> graphs_;
};

}  // namespace torch::comms::nccl
