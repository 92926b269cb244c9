#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <torchcomms/comm.hpp>

namespace torch::comms {

// What a call of torch.distributed issued here, one operation or several, as its kind of work.
//
// Threads: as TorchWork. Failure: poll_once() throws the first error, each time.
class TC_API WorkWrapper final : public c10d::Work {
 public:
  WorkWrapper(std::vector<WorkPtr> works, std::vector<at::Tensor> outputs, c10d::OpType type,
              int source_rank = -1);

  // True also for a work that failed; isSuccess() tells.
  bool isCompleted() override;
  // Who asks these two has met a failure, as who waits has, and so has who gets a future that
  // fails.
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  // "failed", "completed" or "in progress", for display: nobody has met a failure by it.
  std::string_view standing() const;
  int sourceRank() const override;  // of a receive, else -1
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(kNoTimeout); }
  // A limit other than none throws CommError(kUnsupported): an operation has its limit from its
  // call on. Returns when the callbacks of its future have run; one of them may wait, too.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  // CPU, and where poll_once() blocks the host: completed when the operation has ended, by a thread
  // of its own kind, so that a callback may block and wait for other futures. GPU: at once, ordered
  // on the current stream.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // From here on poll_once() also blocks the host until a device has done it, as that of a
  // synchronous barrier does. Before the first poll_once().
  void blockHost() noexcept { blocks_host_ = true; }
  // What futures fail with, made of the work's error; by default that itself. For whoever knows
  // Python: torch hands on to it what it knows, and anything else as a RuntimeError. Once.
  using FutureError = std::exception_ptr (*)(const std::exception_ptr& error);
  static void setFutureError(FutureError make) noexcept;
  // max() where the backend does not say.
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  std::chrono::milliseconds getTimeout() const override;
#else  // torch has no such method
  std::chrono::milliseconds getTimeout() const;
#endif

 private:
  struct Callbacks;
  // `callbacks`: null where the future is complete before anybody has it.
  c10::intrusive_ptr<c10::ivalue::Future> make_future(std::shared_ptr<Callbacks>& callbacks) const;

  std::vector<WorkPtr> works_;
  std::vector<at::Tensor> outputs_;
  int source_rank_;
  bool blocks_host_ = false;
  std::mutex making_mutex_;  // of one getFuture() at a time
  std::mutex future_mutex_;  // guards the rest
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::shared_ptr<Callbacks> callbacks_;  // of future_
};

// A communicator as a backend of torch.distributed's process groups: every call becomes an
// operation of the communicator, on its one path.
//
// Limits: the call's own, else setTimeout()'s, else the communicator's. Tensors of elementwise
// operations and messages may have any dense layout, which must be the same on all ranks; those of
// the others any layout at all. Copies stand for such as are not contiguous, and an operation whose
// outputs these are is waited for in the call.
// Threads: as TorchComm. Failure: what the communicator throws, and CommError(kInvalidArgument) for
// a call that has no equal here (several tensors a rank, a root tensor).
class TC_API BackendWrapper final : public c10d::Backend {
 public:
  // Fields of torch.distributed's options are there for its own use. Of those here a wrapper's tell
  // how its communicator was made; of those that are given to next_split() the abort flag, the
  // priority and the hints count.
  struct TC_API Options final : c10d::Backend::Options {
    Options();
#ifdef C10D_BACKEND_HAS_RECONFIGURE  // torch knows how to copy what we added
    c10::intrusive_ptr<c10d::Backend::Options> clone() const override;
#endif
    // As in the options of torch's own gloo: DDP's log takes every backend of that type for it, and
    // reads the second.
    std::vector<std::shared_ptr<void>> devices;
    int threads = 2;

    std::optional<bool> abort_process_on_timeout_or_error;
    std::optional<bool> is_high_priority_stream;
    c10::intrusive_ptr<c10d::Store> store;  // null once it has met the others, as CommOptions say
    // Of calls without a limit of their own: the communicator's, else what setTimeout() said.
    std::chrono::milliseconds default_timeout = kDefaultTimeout;
    Hints hints;
  };

  // Throws CommError(kInvalidArgument) for nullptr.
  explicit BackendWrapper(std::shared_ptr<TorchComm> comm);

  const std::shared_ptr<TorchComm>& getComm() const { return comm_; }

  const std::string getBackendName() const override;  // NOLINT(readability-const-return-type)
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  // That of a call with this one: its own, else setTimeout()'s; kNoTimeout where there is neither.
  std::chrono::milliseconds limit(std::chrono::milliseconds timeout) const;
  // How many collectives were called. The same on all ranks, unless they disagree.
  uint64_t getSequenceNumberForGroup() override { return collectives_.load(); }
  void setSequenceNumberForGroup() override {}
  std::shared_ptr<c10::Allocator> getMemAllocator() override;

  // A piece of memory of torch's caching allocator.
  struct MemPoolSegment {
    uintptr_t address;
    size_t size_bytes;
    at::Device device;
  };
  using MemPoolId = std::pair<uint64_t, uint64_t>;  // of torch.cuda.MemPool
  // Registers what the pool has now, as TorchComm::tensor_register() does: called again, also what
  // has come since. A communicator on the CPU passes over memory of GPUs, and over a backend
  // without registration.
  // Throws: CommError, kInvalidArgument for memory of another device, else as tensor_register().
  void registerMemPool(const MemPoolId& pool, const std::vector<MemPoolSegment>& segments);
  // Before the pool frees its memory. Nothing for a pool that is not registered, or a communicator
  // that is finalized. Throws: as TorchComm::tensor_deregister().
  void deregisterMemPool(const MemPoolId& pool);

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
#ifdef C10D_BACKEND_HAS_RECONFIGURE  // torch has this, too
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input,
                        const c10d::GatherOptions& options) override;
#endif
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  // Rank 0 names the ranks that have not come by the limit; without `wait_all_ranks` the first one.
  // Ranks that have come learn of it at once. Nothing of that meets messages of the program, where
  // the backend has tags.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  // Always asynchronous. The source rank of a work from recvAnysource() is known once it has ended.
  WorkPtr send(Tensors& tensors, int dst, int tag) override;
  WorkPtr recv(Tensors& tensors, int src, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  // Sends and receives in between go out as one batch, with their tags; their works are complete at
  // once, and wait for it from the end on. The work of the end is the work of all that was called
  // in between. Throws CommError(kInvalidArgument) when nested or unmatched. A call in between that
  // throws, a nested start, and abort() give up what is in the batch: poll_once() of those works
  // and the end throw CommError(kInvalidArgument), and calls are as outside.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

#ifdef C10D_BACKEND_HAS_WINDOW
  bool supportsWindow() const override { return comm_->supportsWindow(); }
  // Collective where a tensor is given.
  c10::intrusive_ptr<c10d::Window> new_window(
      const std::optional<at::Tensor>& tensor = std::nullopt) override;
#endif

  // For torch.distributed.split_group: it refuses a group whose backend does not say so.
  bool supportsSplitting() const override { return true; }
  // nullptr for a rank that is not in `ranks`, after its part in the parent's split. A child's
  // limit is the one of `options`.
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;

  // Quiet and repeatable: torch calls them at the end, whatever was before.
  void abort() override;
  void shutdown() override;

 private:
  class CoalescingRegion;  // between startCoalescing() and endCoalescing()
  class C10dCallScope;
  class RegisteredPools;

  template <class Ours>
  Ours with_timeout(std::chrono::milliseconds timeout) const {
    Ours options;
    options.timeout = limit(timeout);
    return options;
  }
  void send_check_in();
  void wait_for_check_ins(const c10d::BarrierOptions& options, bool wait_all_ranks);
  // One collective, which `issue`(outputs as it needs them, async_op) begins. Where copies stand
  // for some of `outputs`, it is waited for here.
  template <class Issue>
  torch::comms::WorkPtr run_into(const Tensors& outputs, bool async_op, const Issue& issue);
  torch::comms::WorkPtr all_gather_single(const at::Tensor& output, const at::Tensor& input,
                                          const c10d::AllgatherOptions& options);
  torch::comms::WorkPtr reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                              const c10d::ReduceScatterOptions& options);
  c10::intrusive_ptr<WorkWrapper> collective(const C10dCallScope& call, torch::comms::WorkPtr work,
                                             Tensors outputs, c10d::OpType type);
  c10::intrusive_ptr<WorkWrapper> wrap(const C10dCallScope& call,
                                       std::vector<torch::comms::WorkPtr> works, Tensors outputs,
                                       c10d::OpType type, int source = -1);
  c10::intrusive_ptr<WorkWrapper> coalesce(const P2POp& message, Tensors outputs, c10d::OpType type,
                                           int source = -1);
  bool is_coalescing() const;

  std::shared_ptr<TorchComm> comm_;
  c10::intrusive_ptr<Options> options_;  // where torch's own gloo has them, see AlgorithmOptions
  std::chrono::milliseconds timeout_ = torch::comms::kNoTimeout;  // of later operations
  std::atomic<uint64_t> collectives_{0};
  std::shared_ptr<CoalescingRegion> coalescing_region_;  // null outside; may have been given up
  std::shared_ptr<RegisteredPools> pools_;
};

}  // namespace torch::comms
