#pragma once

#include <memory>
#include <string>

#include <torchcomms/backend.hpp>
#include <torchcomms/operation.hpp>

#include "core/comm/comm_device.hpp"

namespace torch::comms {

struct StagedCall;

// Operations on tensors of a GPU, carried out by a backend for CPU tensors on copies in pinned host
// memory. An operation is fetched when the current stream of its call has come that far, handed to
// the backend in the order of calls, and what it has written is copied back. Tensors on the CPU are
// used as they are, in the same order.
//
// A synchronous operation blocks the host until the result is on the device. An asynchronous call
// returns at once, and a thread of this communicator does all that; its poll_once() blocks the host
// until the backend is done, and orders the current stream behind the copies back. Works keep
// tensors, and never the communicator. Limits count from when the backend is called. After a
// failure the tensors on the device are as they were.
//
// Threads: as TorchCommBackend; no other call of the backend may be under way, but abort() and
// isAborted(). Failure: as the backend; CommError(kUnsupported) where the current stream captures.
class TC_API Staging {
 public:
  // `device`: of all tensors that are not on the CPU. It may be the one of the runtime for host
  // memory: then it is of all that are.
  // `most_idle_bytes`: how much pinned memory is kept for later operations.
  static constexpr size_t kMaxIdleBytes = size_t{256} << 20;
  Staging(std::shared_ptr<TorchCommBackend> backend, std::shared_ptr<CommDevice> device,
          size_t most_idle_bytes = kMaxIdleBytes);
  // Lets operations that are under way end, without waiting for them.
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // For the tensors of `backend`'s communicator, of which one is on `wanted`. Throws CommError
  // without context: kBackendUnavailable, kInvalidArgument.
  static std::unique_ptr<Staging> open(std::shared_ptr<TorchCommBackend> backend, at::Device wanted,
                                       int rank);

  const at::Device& device() const noexcept;

  template <class Op>
  WorkPtr run(const Op& op);

  // Blocks until the backend has all operations that were called; then it may be called otherwise.
  void flush();
  // Blocks until all have ended.
  void drain();

  // The pinned memory that is kept now.
  size_t idle_bytes() const;

 private:
  class StagingExecutor;
  class StagedWork;
  struct StagedOperation;
  WorkPtr run(StagedCall call);

  std::shared_ptr<StagingExecutor> executor_;  // shared with its thread and with works
  uint64_t fork_generation_;
};

// `device`, where a communicator's tensors are to be, or why they cannot be there: throws
// CommError, of new_comm, kUnsupported for what is neither CPU nor a GPU of torch's,
// kBackendUnavailable where there is no runtime or no GPU, kInvalidArgument for its index. Touches
// no GPU runtime for the CPU.
TC_API void require_stageable(const at::Device& device, const std::string& backend,
                              const std::string& comm);
// With an index, and made current; the CPU stays as it is.
TC_API at::Device staged_device(const at::Device& device, int rank, const std::string& backend);

}  // namespace torch::comms
