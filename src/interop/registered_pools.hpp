#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torchcomms/backend_wrapper.hpp>

namespace torch::comms {

// The segments of torch's memory pools that are registered with one communicator. Any thread.
class BackendWrapper::RegisteredPools {
 public:
  // Registers those of `segments` that are not registered yet, and deregisters those of the pool
  // that are not among them any more.
  // Throws: as BackendWrapper::registerMemPool(). What was registered before the error stays so.
  void update(TorchComm& comm, const MemPoolId& pool, const std::vector<MemPoolSegment>& segments);
  // Deregisters all of a pool. Does nothing for a pool that is not registered.
  void remove(TorchComm& comm, const MemPoolId& pool);

 private:
  using PoolSegmentRange = std::pair<uintptr_t, size_t>;  // address and bytes
  std::mutex mutex_;                                      // guards pools_
  std::map<MemPoolId, std::map<PoolSegmentRange, at::Tensor>> pools_;
};

}  // namespace torch::comms
