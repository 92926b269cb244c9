#include "interop/registered_pools.hpp"

#include <algorithm>

#include <ATen/ops/from_blob.h>
#include <torchcomms/base/error.hpp>

namespace torch::comms {
namespace {

at::Tensor tensor_of(const BackendWrapper::MemPoolSegment& segment) {
  void* const begin =
      reinterpret_cast<void*>(segment.address);  // NOLINT(performance-no-int-to-ptr)
  return at::for_blob(begin, {static_cast<int64_t>(segment.size_bytes)})
      .options(at::TensorOptions().dtype(at::kByte).device(segment.device))
      .target_device(segment.device)
      .make_tensor();
}

// Returns: false for a communicator on the CPU, which does not use GPU memory and may not support
// registration.
bool concerns(const TorchComm& comm, const BackendWrapper::MemPoolSegment& segment) {
  if (segment.device == comm.getDevice()) return true;
  if (comm.getDevice().is_cpu()) return false;
  throw CommError(
      Errc::kInvalidArgument,
      "the pool has memory on " + segment.device.str() + ", the communicator is on " +
          comm.getDevice().str(),
      {.op = "register_mem_pool", .comm = std::string(comm.getCommName()), .rank = comm.getRank()});
}

// Registers one segment. Returns: false if the communicator is on the CPU and its backend registers
// nothing.
bool is_registered(TorchComm& comm, const at::Tensor& tensor) {
  try {
    comm.tensor_register(tensor);
    return true;
  } catch (const CommError& error) {
    if (error.code() == Errc::kUnsupported && comm.getDevice().is_cpu()) return false;
    throw;
  }
}

// Deregisters one segment. After the communicator is finalized, its registrations no longer exist.
void deregister(TorchComm& comm, const at::Tensor& tensor) {
  try {
    comm.tensor_deregister(tensor);
  } catch (const CommError& error) {
    if (error.code() != Errc::kFinalized) throw;
  }
}

}  // namespace

void BackendWrapper::RegisteredPools::update(TorchComm& comm, const MemPoolId& pool,
                                             const std::vector<MemPoolSegment>& segments) {
  const std::lock_guard lock(mutex_);
  auto& known = pools_[pool];
  const auto range_of = [](const MemPoolSegment& segment) {
    return PoolSegmentRange(segment.address, segment.size_bytes);
  };
  for (auto entry = known.begin(); entry != known.end();) {
    const bool is_there = std::any_of(segments.begin(), segments.end(), [&](const auto& segment) {
      return range_of(segment) == entry->first;
    });
    if (is_there) {
      ++entry;
      continue;
    }
    const auto gone = entry->second;
    entry = known.erase(entry);
    deregister(comm, gone);
  }
  for (const auto& segment : segments) {
    if (segment.size_bytes == 0 || !concerns(comm, segment) || known.contains(range_of(segment)))
      continue;
    auto tensor = tensor_of(segment);
    if (is_registered(comm, tensor)) known.emplace(range_of(segment), std::move(tensor));
  }
}

void BackendWrapper::RegisteredPools::remove(TorchComm& comm, const MemPoolId& pool) {
  const std::lock_guard lock(mutex_);
  const auto found = pools_.find(pool);
  if (found == pools_.end()) return;
  auto& known = found->second;
  while (!known.empty()) {
    const auto tensor = known.begin()->second;
    known.erase(known.begin());
    deregister(comm, tensor);
  }
  pools_.erase(found);
}

}  // namespace torch::comms
