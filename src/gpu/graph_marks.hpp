#pragma once

#include <cstdint>
#include <string>

#include "gpu/runtime.hpp"

namespace torch::comms::gpu {

// What tells the host how far a graph's replays have come. Functions return 0, or an error of the
// runtime; an error leaves the capture as it was.
struct GraphMarks {
  // Adds to the graph that `stream` is capturing: `word`, of pinned memory, becomes `value` when
  // all that the stream has there by now is done, and the node `after`, where it is not null.
  // Nothing of the stream waits for it. `node` is what to name it by.
  int (*write)(NativeStream stream, void* after, uint32_t* word, uint32_t value, void** node);
  // `release(argument)` runs once the graph that `stream` is capturing, and all that was made of
  // it, are gone: on whatever thread; it must not call the runtime. After an error it does not run.
  int (*keep)(NativeStream stream, void (*release)(void*), void* argument);
};

// Null where the runtime, or its driver, cannot do that; `why` then says what is missing.
TC_API const GraphMarks* graph_marks_of(const Runtime& runtime, std::string* why = nullptr);

// The rows of CUDA, whose driver is looked for once, and of host memory.
const GraphMarks* cuda_graph_marks(std::string& why);
const GraphMarks* cpu_graph_marks() noexcept;

}  // namespace torch::comms::gpu
