#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/nccl/streams/nccl_device.hpp"
#include "gpu/graph_markers.hpp"

namespace torch::comms::nccl {

// The last operation of a row: its stream, and the event of its end.
struct StreamMarker {
  gpu::NativeStream stream = nullptr;
  gpu::EventPool::Lease end;
};

// The graphs that hold operations of one communicator, for as long as they can be launched.
//
// With serialize_with_graphs() an operation runs beside no other one of the communicator, though
// graphs are launched on several streams and calls are made meanwhile: a launch of a graph begins
// its first operation when all is done that the host launched before, and calls begin when such
// graphs are done. So the host's launches, which all ranks make in the same order, are what they
// are beside each other. It costs a launch of a graph 0.8 us, and a call two events while there are
// graphs. Libraries of vendors do the same for their own operations.
//
// Threads: of one caller at a time; has_live(): any.
class GraphRegistry {
 public:
  explicit GraphRegistry(std::shared_ptr<NcclDevice> device);
  ~GraphRegistry();
  GraphRegistry(const GraphRegistry&) = delete;
  GraphRegistry& operator=(const GraphRegistry&) = delete;

  // Of the operations that follow, whatever came before. Throws CommError(kVendor).
  void serialize_with_graphs();

  // One of them.
  struct CapturedGraph {
    gpu::CaptureId id;
    uint64_t number;                                     // from 1 on
    std::shared_ptr<gpu::GraphLifetime> life = nullptr;  // null: not known
    StreamMarker last_operation = {};                    // of its operations; none at first
    bool is_serialized = false;                          // it waits for what is launched before
    gpu::GraphMarker done = {};
  };
  // The one that `stream` captures, before an operation there. `last`: of the calls so far. Throws
  // CommError(kVendor).
  std::shared_ptr<CapturedGraph> graph_of(gpu::NativeStream stream, gpu::CaptureId capture,
                                          const StreamMarker& last);
  // An operation of it has been launched. Throws CommError(kVendor).
  void after_captured_launch(CapturedGraph& graph, gpu::NativeStream stream);

  // Before and after the launch of an operation that is in no graph.
  void before_eager_launch(gpu::NativeStream stream);
  void after_eager_launch(gpu::NativeStream stream);

  // Whether some graph may still be launched, for all that is known.
  bool has_live() noexcept { return has_live({}); }
  // The same of those that began when there had been `after`, and before there were more than
  // `until`.
  struct GraphRange {
    uint64_t after = 0, up_to = std::numeric_limits<uint64_t>::max();
  };
  bool has_live(const GraphRange& span) noexcept;
  // How many there have been.
  uint64_t count() noexcept;

 private:
  void remove_destroyed() noexcept;
  // Has what `stream` captures next wait for what is launched before the graph.
  void make_serialized(CapturedGraph& graph, gpu::NativeStream stream, const StreamMarker& last);

  const std::shared_ptr<NcclDevice> device_;
  const gpu::GraphMarkerTable* const marks_;  // null: nobody tells of a graph's end
  gpu::EventPool::Lease done_;                // with serialize_with_graphs(): all that was launched
  bool may_have_recorded_ = false;            // graphs may have recorded it since the last call did
  std::mutex mutex_;                          // guards what is below
  uint64_t count_ = 0;
  std::vector<std::shared_ptr<CapturedGraph>> graphs_;
};

}  // namespace torch::comms::nccl
