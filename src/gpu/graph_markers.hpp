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

// A node of a graph that says when the graph's work has come to its place: writes a word, or
// records an event.
struct GraphMarker {
  void* node = nullptr;  // null: none. Whoever made the mark knows what it is
  uint32_t* word = nullptr;
  // What it comes behind in the capture, in order: nodes, or streams and how much of each.
  std::vector<std::pair<void*, size_t>> position;
};

// What a graph gets beside the work that its stream captures: what tells how far its replays have
// come, and what they wait for. Functions return 0, or an error of the runtime; an error leaves the
// capture as it was.
//
// Threads: those of one capture from one at a time.
struct GraphMarkerTable {
  // Adds a mark to the graph that `stream` is capturing: `word`, of pinned memory, becomes `value`
  // when all that the stream has there by now is done, and the mark `after`, where it is not null.
  // Nothing of the stream waits for it. `made` may be `after`.
  int (*add)(NativeStream stream, const GraphMarker* after, uint32_t* word, uint32_t value,
             GraphMarker* made);
  // Has `mark`, of the same capture, write `value` instead if what `stream` captures next has the
  // same place; `*done` says whether.
  int (*change)(NativeStream stream, const GraphMarker& mark, uint32_t value, bool* done);
  // Has every launch of the graph wait, where `stream` is in it now, for the newest record of
  // `event` before that launch, by whomever.
  int (*wait)(NativeStream stream, NativeEvent event);
  // Has every launch record `event` when all that the stream has there by now is done; `*mark`, of
  // the same event and capture, moves here, or has no node yet. Nothing of the stream waits for it.
  int (*record)(NativeStream stream, NativeEvent event, GraphMarker* mark);
  // `release(argument)` runs once the graph that `stream` is capturing, and all that was made of
  // it, are gone: on whatever thread; it must not call the runtime. After an error it does not run.
  int (*retain)(NativeStream stream, void (*release)(void*), void* argument);
};

// What lives with a graph, and learns when it and all that was made of it are gone. It may end on
// any thread, where it must not call the runtime.
struct GraphLifetime {
  virtual ~GraphLifetime() = default;
  std::atomic<bool> is_destroyed{false};
};
// The graph that `stream` is capturing has `life` from now on. Throws CommError(kVendor).
TC_API void retain_with_graph(const GraphMarkerTable& marks, NativeStream stream,
                              std::shared_ptr<GraphLifetime> life);

// Null where the runtime, or its driver, cannot do that; `why` then says what is missing.
TC_API const GraphMarkerTable* graph_markers_of(const Runtime& runtime, std::string* why = nullptr);

// The rows of CUDA, whose driver is looked for once, and of host memory.
const GraphMarkerTable* cuda_graph_markers(std::string& why);
const GraphMarkerTable* cpu_graph_markers() noexcept;

}  // namespace torch::comms::gpu
