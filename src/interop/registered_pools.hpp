#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torchcomms/backend_wrapper.hpp>

namespace torch::comms {

// The segments of torch's memory pools that are registered with one communicator.
// Threads: any.
class BackendWrapper::RegisteredPools {
 public:
  // Registers the segments that are not registered yet, and deregisters segments of the pool that
  // `segments` no longer contains.
  // Throws: as BackendWrapper::registerMemPool(). Segments that were registered before the error
  // stay registered.
  void update(TorchComm& comm, const MemPoolId& pool, const std::vector<MemPoolSegment>& segments);
  // Deregisters all segments of a pool. Does nothing for a pool that is not registered.
  void remove(TorchComm& comm, const MemPoolId& pool);

 private:
  using PoolSegmentRange = std::pair<uintptr_t, size_t>;  // address and bytes
  std::mutex mutex_;                                      // guards pools_
  std::map<MemPoolId, std::map<PoolSegmentRange, at::Tensor>> pools_;
};

}  // namespace torch::comms
