#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/runtime.hpp"

namespace torch::comms::gpu {

// A node of a graph that shows the progress of a replay: it writes a word or records an event.
struct GraphMarker {
  void* node = nullptr;  // null: none; only the GraphMarkerTable that made it knows its type
  uint32_t* word = nullptr;
  // The node's dependencies in the capture, in order: nodes, or streams with the number of their
  // tasks.
  std::vector<std::pair<void*, size_t>> position;
};

// Functions that add nodes to a graph beside the work that its stream captures: markers that show
// the progress of replays, and waits. Each returns 0 or an error number of the runtime. After an
// error the capture is unchanged.
//
// Threads: one at a time for markers of one capture.
struct GraphMarkerTable {
  // Adds a marker to the graph that `stream` is capturing. `word`, in pinned memory, becomes
  // `value` when the work that the stream has captured so far is done, and the marker `after`, if
  // not null. Later work of the stream does not wait for it. `result` may be `after`.
  int (*add)(NativeStream stream, const GraphMarker* after, uint32_t* word, uint32_t value,
             GraphMarker* result);
  // Changes `mark`, of the same capture, to write `value` if the next work of `stream` has the same
  // dependencies. `*done` returns whether it was changed.
  int (*change)(NativeStream stream, const GraphMarker& mark, uint32_t value, bool* done);
  // Makes every launch of the graph wait, at the current point of `stream`, for the newest record
  // of `event` before the launch. Any stream may have recorded the event.
  int (*wait)(NativeStream stream, NativeEvent event);
  // Makes every launch record `event` when the work that the stream has captured so far is done.
  // `*mark`, of the same event and capture, moves to this point; at first it has no node. Later
  // work of the stream does not wait for it.
  int (*record)(NativeStream stream, NativeEvent event, GraphMarker* mark);
  // Makes the graph that `stream` is capturing own `argument`. `release(argument)` runs on any
  // thread once the graph and all its copies and executables are destroyed; it must not call the
  // runtime. After an error it does not run.
  int (*retain)(NativeStream stream, void (*release)(void*), void* argument);
};

// An object that lives as long as a graph and all its copies and executables; `is_destroyed` is
// then set. It may be destroyed on any thread and must not call the runtime there.
struct GraphLifetime {
  virtual ~GraphLifetime() = default;
  std::atomic<bool> is_destroyed{false};
};
// Makes the graph that `stream` is capturing own `life`. Throws: CommError(kVendor).
TC_API void retain_with_graph(const GraphMarkerTable& marks, NativeStream stream,
                              std::shared_ptr<GraphLifetime> life);

// Returns the functions for `runtime`; null if the runtime or its driver lacks them, and `why` then
// says what is missing.
TC_API const GraphMarkerTable* graph_markers_of(const Runtime& runtime, std::string* why = nullptr);

// The functions for CUDA, whose driver is loaded once, and for host memory.
const GraphMarkerTable* cuda_graph_markers(std::string& why);
const GraphMarkerTable* cpu_graph_markers() noexcept;

}  // namespace torch::comms::gpu
