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

// The c10d work of one call of torch.distributed, which may consist of several operations.
// Throws: wait() throws the first error, each time.
// Threads: as TorchWork; getFuture() may run on any thread.
class TC_API WorkWrapper final : public c10d::Work {
 public:
  WorkWrapper(std::vector<WorkPtr> works, std::vector<at::Tensor> outputs, c10d::OpType type,
              int source_rank = -1);

  // Returns: true also for a work that failed; isSuccess() is false for it.
  bool isCompleted() override;
  // Both functions mark a failure as observed, as wait() does. A future that fails marks it, too.
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  // Returns: "failed", "completed" or "in progress", for display; it does not mark a failure as
  // observed.
  std::string_view standing() const;
  // Returns: the source rank of a receive, for a receive from any source once it has completed;
  // otherwise -1.
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { wait(kNoTimeout); }
  // Waits for all operations, and for the callbacks of a future that getFuture() has returned; a
  // callback may itself call wait().
  // Returns: true.
  // Blocks: as TorchWork::wait().
  // Throws: the first error; CommError(kUnsupported) for a timeout other than kNoTimeout and
  // milliseconds::max(), because an operation gets its timeout when it is called.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  // Returns: a future of the outputs, the same for each call. On GPU it is complete at once,
  // ordered on the current stream. On CPU, and if wait() blocks the host, a thread completes it
  // when all operations have ended. A callback may therefore block and wait for other futures.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // After this call, wait() also blocks the host until the device has finished, as a synchronous
  // barrier requires. Call it before the first wait().
  void blockHost() noexcept { blocks_host_ = true; }
  // Sets the function that turns the error of a work into the exception of its futures; without one
  // they get the error itself. The Python bindings set it, because torch passes on the exceptions
  // that it knows and turns all others into a RuntimeError. Set it once.
  using FutureError = std::exception_ptr (*)(const std::exception_ptr& error);
  static void setFutureError(FutureError make) noexcept;
  // Returns: the longest timeout of its operations; milliseconds::max() if a backend does not
  // report it.
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  std::chrono::milliseconds getTimeout() const override;
#else  // this version of torch has no such method
  std::chrono::milliseconds getTimeout() const;
#endif

 private:
  struct Callbacks;
  // `callbacks`: stays null if the future is complete when it is returned.
  c10::intrusive_ptr<c10::ivalue::Future> make_future(std::shared_ptr<Callbacks>& callbacks) const;

  std::vector<WorkPtr> works_;
  std::vector<at::Tensor> outputs_;
  int source_rank_;
  bool blocks_host_ = false;
  std::mutex making_mutex_;  // serializes getFuture()
  std::mutex future_mutex_;  // guards the rest
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::shared_ptr<Callbacks> callbacks_;  // of future_
};

// A communicator as a backend of torch.distributed's process groups. Every call becomes an
// operation of the communicator.
//
// Tensors of elementwise operations and messages may have any dense layout, which must be the same
// on all ranks. Tensors of other operations may have any layout. The wrapper copies tensors that
// are not contiguous; if such a tensor is an output, the call waits for the operation.
//
// A call has its own timeout, otherwise the timeout of setTimeout(), otherwise that of the
// communicator.
// Throws: the errors of the communicator; CommError(kInvalidArgument) for a call that has no
// equivalent here (several tensors per rank, a root tensor), or a tag outside 0 to kLargestTag.
// Threads: as TorchComm.
class TC_API BackendWrapper final : public c10d::Backend {
 public:
  // The options of this backend. The options of a wrapper describe how its communicator was
  // created. split() reads the name, the timeout, the abort flag, the priority and the hints of its
  // options. torch.distributed itself uses the fields of the base class.
  struct TC_API Options final : c10d::Backend::Options {
    Options();
#ifdef C10D_BACKEND_HAS_RECONFIGURE  // torch's own clone() would drop the fields below
    c10::intrusive_ptr<c10d::Backend::Options> clone() const override;
#endif
    // Equal to the options of torch's own gloo: DDP's log treats every backend of that type as gloo
    // and reads `threads`.
    std::vector<std::shared_ptr<void>> devices;
    int threads = 2;

    std::optional<bool> abort_process_on_timeout_or_error;
    std::optional<bool> is_high_priority_stream;
    c10::intrusive_ptr<c10d::Store>
        store;  // null once the communicator is connected; see CommOptions
    // The timeout of calls without their own: that of setTimeout(), otherwise the communicator's.
    std::chrono::milliseconds default_timeout = kDefaultTimeout;
    Hints hints;
  };

  // Wraps `comm`. A communicator that has no members until reconfigure() becomes rank 0 of 1.
  // Throws: CommError(kInvalidArgument) for nullptr.
  explicit BackendWrapper(std::shared_ptr<TorchComm> comm);

  const std::shared_ptr<TorchComm>& getComm() const { return comm_; }

  const std::string getBackendName() const override;  // NOLINT(readability-const-return-type)
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override;
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  // Returns: the timeout of a call, kMaxTimeout (1e9 s) at most: `timeout` if it is positive,
  // otherwise that of setTimeout(); kNoTimeout if neither is set.
  std::chrono::milliseconds limit(std::chrono::milliseconds timeout) const;
  // Returns: the number of collectives that were called. It is the same on all ranks unless they
  // disagree.
  uint64_t getSequenceNumberForGroup() override { return collectives_.load(); }
  void setSequenceNumberForGroup() override {}
  std::shared_ptr<c10::Allocator> getMemAllocator() override;

  // One segment of torch's caching allocator.
  struct MemPoolSegment {
    uintptr_t address;
    size_t size_bytes;
    at::Device device;
  };
  using MemPoolId = std::pair<uint64_t, uint64_t>;  // of torch.cuda.MemPool
  // Registers the segments that the pool has now, as TorchComm::tensor_register() does. A later
  // call adds new segments, and deregisters segments that are not in its list. A communicator on
  // the CPU ignores GPU memory, and ignores the call if its backend has no registration.
  // Throws: CommError: kInvalidArgument for memory of another device if the communicator is on a
  // GPU; otherwise as tensor_register().
  void registerMemPool(const MemPoolId& pool, const std::vector<MemPoolSegment>& segments);
  // Deregisters the segments of a pool; call it before the pool frees its memory. It does nothing
  // for a pool that is not registered, or after finalize().
  // Throws: as TorchComm::tensor_deregister().
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
#ifdef C10D_BACKEND_HAS_RECONFIGURE  // this version of torch has it, too
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
  // A barrier in which rank 0 reports the ranks that have not arrived within the timeout of
  // `options`; without `wait_all_ranks`, only the first one. Rank 0 then informs the ranks that
  // have arrived, which throw, too. They wait for rank 0 up to the timeout of setTimeout(),
  // otherwise that of the communicator. If the backend has tags, the messages of the barrier do not
  // match messages of the program.
  // Throws: CommError: kTimeout for missing ranks, and on rank 0 for a timeout of 0; otherwise the
  // error of the message that failed.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  // Messages are always asynchronous. The work of recvAnysource() reports its source rank once it
  // has ended. Between startCoalescing() and endCoalescing(), recvAnysource() throws
  // CommError(kUnsupported).
  WorkPtr send(Tensors& tensors, int dst, int tag) override;
  WorkPtr recv(Tensors& tensors, int src, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  // Starts a batch: sends and receives until endCoalescing() are issued together, with their tags.
  // Their works are complete at once; after endCoalescing() they wait for the batch. The work of
  // endCoalescing() stands for all calls in between. A call in between that throws, a nested start,
  // or abort() discards the batch. Then wait() of its works and endCoalescing() throw
  // CommError(kInvalidArgument), and later calls are issued normally.
  // Throws: CommError(kInvalidArgument) if the calls are nested or unmatched; endCoalescing() also
  // throws the error of the batch.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

#ifdef C10D_BACKEND_HAS_WINDOW
  bool supportsWindow() const override { return comm_->supportsWindow(); }
  // All ranks must call it if a tensor is given.
  c10::intrusive_ptr<c10d::Window> new_window(
      const std::optional<at::Tensor>& tensor = std::nullopt) override;
#endif

  // torch.distributed.split_group() refuses a backend that does not return true here.
  bool supportsSplitting() const override { return true; }
  // Creates the backend of a group of ranks; Options says which options count. The store is not
  // used.
  // Returns: nullptr for a rank that is not in `ranks`. That rank must call split(), too, as for
  // TorchComm::split().
  c10::intrusive_ptr<c10d::Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
      const c10::intrusive_ptr<c10d::Backend::Options>& options) override;

  // abort() aborts the communicator, and shutdown() finalizes it. Both may be called repeatedly,
  // and only log an error, because torch calls them at its end in any state.
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
  // Runs one collective. `issue`(outputs, async_op) begins it with the tensors it can use; if some
  // of these are copies of `outputs`, this call waits for the operation.
  template <class Issue>
  torch::comms::WorkPtr run_into(const Tensors& outputs, bool async_op, const Issue& issue);
  torch::comms::WorkPtr start_all_gather_single(const at::Tensor& output, const at::Tensor& input,
                                                const c10d::AllgatherOptions& options);
  torch::comms::WorkPtr start_reduce_scatter_single(const at::Tensor& output,
                                                    const at::Tensor& input,
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
  c10::intrusive_ptr<Options>
      options_;  // torch's own gloo keeps its options in the same place, see Options
  std::chrono::milliseconds timeout_ = torch::comms::kNoTimeout;  // of later operations
  std::atomic<uint64_t> collectives_{0};
  std::shared_ptr<CoalescingRegion>
      coalescing_region_;  // null outside a region; it may have been discarded
  std::shared_ptr<RegisteredPools> pools_;
};

}  // namespace torch::comms
