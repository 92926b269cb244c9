#pragma once

#include <cstddef>
#include <cstdint>

// Functions and constants of the CUDA driver for which the runtime has no stable names. Handles are
// opaque and shared with the runtime. tests/cpp/vendor/abi_test.cpp compares them with cuda.h.
namespace torch::comms::gpu::cuda {

// SYMBOL(name, type): the driver's name is "cu" + name.
#define TC_CUDA_DRIVER_SYMBOLS(SYMBOL)                                                             \
  SYMBOL(CtxGetCurrent, int(void** context))                                                       \
  SYMBOL(StreamGetCaptureInfo_v2, int(void* stream, int* status, uint64_t* id, void** graph,       \
                                      void* const** dependencies, size_t* count))                  \
  SYMBOL(GraphAddBatchMemOpNode, int(void** node, void* graph, void* const* dependencies,          \
                                     size_t count, const BatchMemOpNode* parameters))              \
  SYMBOL(GraphBatchMemOpNodeSetParams, int(void* node, const BatchMemOpNode* parameters))          \
  SYMBOL(UserObjectCreate, int(void** object, void* argument, void (*destroy)(void*),              \
                               unsigned references, unsigned flags))                               \
  SYMBOL(UserObjectRelease, int(void* object, unsigned count))                                     \
  SYMBOL(GraphRetainUserObject, int(void* graph, void* object, unsigned count, unsigned flags))    \
  SYMBOL(StreamWaitEvent, int(void* stream, void* event, unsigned flags))                          \
  SYMBOL(GraphAddEventRecordNode,                                                                  \
         int(void** node, void* graph, void* const* dependencies, size_t count, void* event))      \
  SYMBOL(GraphAddDependencies, int(void* graph, void* const* from, void* const* to, size_t count)) \
  SYMBOL(GraphRemoveDependencies,                                                                  \
         int(void* graph, void* const* from, void* const* to, size_t count))

// A 32-bit write: the layout of one member of the driver's union of memory operations.
struct WriteValue {
  int operation = 2;
  uint64_t address = 0;
  uint64_t value = 0;
  unsigned flags = 0;  // 0: earlier writes are visible first
  uint64_t alias = 0;
  uint64_t padding = 0;
};
struct BatchMemOpNode {
  void* context = nullptr;
  unsigned count = 0;
  const WriteValue* operations = nullptr;
  unsigned flags = 0;
};

// Results of the driver and the runtime. kShuttingDown is returned while a process exits.
inline constexpr int kNotInitialized = 3;
inline constexpr int kShuttingDown = 4;
inline constexpr int kNoContext = 201;
inline constexpr int kCaptureActive = 1;
inline constexpr unsigned kWaitExternal = 1;
inline constexpr unsigned kNoDestructorSync = 1;
inline constexpr unsigned kMoveReferences = 1;

}  // namespace torch::comms::gpu::cuda
