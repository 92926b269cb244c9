#pragma once

#include <memory>
#include <string>

#include <torchcomms/backend.hpp>
#include <torchcomms/operation.hpp>

#include "core/comm/comm_device.hpp"

namespace torch::comms {

struct StagedCall;

// Carries out operations on GPU tensors by a backend for CPU tensors, on copies in pinned host
// memory. When the current stream of a call has reached the operation, its input is copied to the
// host. The backend then runs operations in the order of calls, and their results are copied back.
// CPU tensors are used directly, in the same order.
//
// A synchronous operation blocks the host until the result is on the device. An asynchronous call
// returns at once, and a thread of this communicator does the work. Its wait() blocks the host
// until the backend has finished, and makes the current stream wait for the copies back. Works keep
// tensors alive, but never the communicator. Timeouts start when the backend is called. After a
// failure the tensors on the device are unchanged.
//
// Failure: as the backend; CommError(kUnsupported) if the current stream is being captured.
// Threads: as TorchCommBackend; no other call of the backend may run meanwhile, except abort() and
// isAborted().
class TC_API Staging {
 public:
  // The default of `most_idle_bytes`, which is how much pinned memory is cached for later
  // operations.
  static constexpr size_t kMaxIdleBytes = size_t{256} << 20;
  // `device`: the device of all tensors that are not on the CPU. If it has the runtime for host
  // memory, all CPU tensors are on it.
  Staging(std::shared_ptr<TorchCommBackend> backend, std::shared_ptr<CommDevice> device,
          size_t most_idle_bytes = kMaxIdleBytes);
  // Lets running operations finish, without waiting for them.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Creates the object for a communicator of `backend` with a tensor on `wanted`.
  // Throws: CommError without context: kBackendUnavailable, kInvalidArgument.
  static std::unique_ptr<Staging> open(std::shared_ptr<TorchCommBackend> backend, at::Device wanted,
                                       int rank);

  const at::Device& device() const noexcept;

  template <class Op>
  WorkPtr run(const Op& op);

  // Blocks until the backend has received all operations; afterwards it may be called directly.
  void flush();
  // Blocks until all operations have ended.
  void drain();

  // Returns: the bytes of pinned memory that are cached now.
  size_t idle_bytes() const;

 private:
  class StagingExecutor;
  class StagedWork;
  struct StagedOperation;
  WorkPtr run(StagedCall call);

  std::shared_ptr<StagingExecutor> executor_;  // shared with its thread and the works
  uint64_t fork_generation_;
};

// Checks that a communicator's tensors can be on `device`. For the CPU it touches no GPU runtime.
// Throws: CommError of new_comm: kUnsupported for a device that is neither the CPU nor one of
// torch's GPUs, kBackendUnavailable without a runtime or GPU, kInvalidArgument for a wrong index.
TC_API void require_stageable(const at::Device& device, const std::string& backend,
                              const std::string& comm);
// Returns: `device` with an index, which becomes the current device; the CPU is returned unchanged.
TC_API at::Device staged_device(const at::Device& device, int rank, const std::string& backend);

}  // namespace torch::comms
