#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/backend.hpp>
#include <torchcomms/batch.hpp>
#include <torchcomms/hooks.hpp>
#include <torchcomms/operation.hpp>

namespace torch::comms {

class ActiveCalls;
class Staging;
class UnobservedFailureGuard;
class OperationObserver;
struct CommFacts;
struct ProfiledOperation;
namespace base {
class OpOrder;
struct OpRecord;
}  // namespace base

// A group of ranks that communicate. Every operation takes one path. It becomes an Operation value
// and is checked; a wrong call throws before anything is sent. Then it runs the pre-hooks, is
// recorded, goes to the backend, and runs the post-hooks. It returns a work. The work of a
// synchronous operation has finished; on a GPU it has finished in the order of the current stream.
//
// Throws: CommError. Operations and calls that change the communicator throw kForked in a forked
// child, and kFinalized after finalize(). Operations also throw kFinalized while there are no
// members. Exceptions of pre-hooks and post-hooks leave a call with their own type.
// Threads: the caller serializes the calls on one communicator. abort(), isAborted() and finalize()
// may run on any thread.
class TC_API TorchComm : public std::enable_shared_from_this<TorchComm> {
 public:
  // Wraps a connected backend; programs use new_comm(). `backend_name` is the name that the program
  // asked for ("nccl-lazy"), which may differ from the backend's own name.
  static std::shared_ptr<TorchComm> wrap(std::shared_ptr<TorchCommBackend> backend,
                                         std::string backend_name);
  ~TorchComm();
  TorchComm(const TorchComm&) = delete;
  TorchComm& operator=(const TorchComm&) = delete;

  // Releases the resources of the communicator. In a forked child it does nothing.
  // Blocks: until calls of other threads on the communicator and its windows have returned. It also
  // waits for operations that are staged through host memory. On gloo, and on ctran on the CPU, it
  // waits for no peer. Backends over vendor libraries wait for the operations in flight. Then they
  // wait for the peers, up to TORCHCOMM_TEARDOWN_TIMEOUT_SECONDS, otherwise the communicator's
  // timeout.
  // Throws: CommError(kFinalized) for a second call if Capabilities::final_finalize is set. After
  // the release it throws the failure of an asynchronous operation that the program has not
  // observed. If the host language interrupts the wait for other threads, nothing is released.
  void finalize();

  // Without members both return -1 or throw CommError(kFinalized): see
  // Capabilities::place_before_members.
  int getRank() const;
  int getSize() const;
  // Returns: true if the communicator has members; false before the first reconfigure(), and after
  // one that failed.
  bool isConnected() const { return backend_->isInitialized(); }
  // Returns: the global ranks of the members in rank order; after reconfigure() 0 to size - 1. The
  // list is empty if there are no members.
  std::vector<int> getRanks() const;
  std::string_view getCommName() const;
  const CommOptions& getOptions() const;
  const at::Device& getDevice() const;
  const std::string& getBackend() const { return backend_name_; }
  // Returns: the version text of the backend's library.
  // Throws: CommError(kUnsupported) if the backend has none.
  std::string_view getBackendVersion() const;
  const std::shared_ptr<TorchCommBackend>& getBackendImpl() const { return backend_; }
  const Capabilities& capabilities() const { return capabilities_; }
  // What the backend reports about itself and its members.
  struct BackendFacts {
    std::vector<std::string> links;
    std::vector<TorchCommBackend::AlgorithmRange> algorithms;
    std::map<std::string, uint64_t> memory;  // bytes of device memory, by purpose
    std::map<std::string, std::string> notes;
  };
  // Returns: what the backend reports; empty after finalize().
  BackendFacts getBackendFacts() const;
  // Returns: the state as text for display: "rank 0 of 4", "rank 0 of 4, ended", "finalized", "not
  // connected", "made before fork()".
  std::string standing() const;

  // The operations. Tensors must be contiguous, of one dtype, and on a device of the backend. Only
  // element counts must match; shapes are not compared. Zero elements are allowed. An asynchronous
  // operation uses its tensors until its work has ended.
  // Throws: CommError: kInvalidArgument for wrong arguments; kUnsupported for an operation, dtype
  // or reduction that the backend does not have. A synchronous operation throws its failure, too.
  WorkPtr send(const at::Tensor& tensor, int dst, bool async_op, const SendOptions& options = {});
  WorkPtr recv(at::Tensor& tensor, int src, bool async_op, const RecvOptions& options = {});
  WorkPtr broadcast(at::Tensor& tensor, int root, bool async_op,
                    const BroadcastOptions& options = {});
  WorkPtr all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                     const AllReduceOptions& options = {});
  WorkPtr reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                 const ReduceOptions& options = {});
  WorkPtr all_gather(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                     const AllGatherOptions& options = {});
  WorkPtr all_gather_v(const Tensors& tensor_list, const at::Tensor& tensor, bool async_op,
                       const AllGatherOptions& options = {});
  WorkPtr all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllGatherSingleOptions& options = {});
  WorkPtr reduce_scatter(at::Tensor& output, const Tensors& input_list, const ReduceOp& op,
                         bool async_op, const ReduceScatterOptions& options = {});
  WorkPtr reduce_scatter_v(at::Tensor& output, const Tensors& input_list, const ReduceOp& op,
                           bool async_op, const ReduceScatterOptions& options = {});
  WorkPtr reduce_scatter_single(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                bool async_op, const ReduceScatterSingleOptions& options = {});
  WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllToAllSingleOptions& options = {});
  WorkPtr all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                              const Splits& output_split_sizes, const Splits& input_split_sizes,
                              bool async_op, const AllToAllvSingleOptions& options = {});
  WorkPtr all_to_all(const Tensors& output_tensor_list, const Tensors& input_tensor_list,
                     bool async_op, const AllToAllOptions& options = {});
  WorkPtr barrier(bool async_op, const BarrierOptions& options = {});
  WorkPtr scatter(at::Tensor& output_tensor, const Tensors& input_tensor_list, int root,
                  bool async_op, const ScatterOptions& options = {});
  WorkPtr gather(const Tensors& output_tensor_list, const at::Tensor& input_tensor, int root,
                 bool async_op, const GatherOptions& options = {});
  WorkPtr gather_single(at::Tensor& output, const at::Tensor& input, int root, bool async_op,
                        const GatherSingleOptions& options = {});

  BatchSendRecv batch_op_create();
  WorkPtr batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                         const BatchP2POptions& options);

  // Creates a communicator of `ranks`, in that order. Every rank of this communicator must call it;
  // on gloo and ctran, ranks that are in no list may stay away. The options are not inherited from
  // this communicator.
  // Returns: nullptr for an empty list (on fake a communicator).
  // Throws: CommError(kInvalidArgument) for a rank out of range, a rank that occurs twice, a list
  // without the own rank, or enable_reconfigure. If ranks pass different lists, kMismatch on
  // backends over vendor libraries, and kTimeout on gloo and ctran.
  std::shared_ptr<TorchComm> split(const std::vector<int>& ranks, const std::string& name,
                                   const CommOptions& options = {});

  bool supportsWindow() const { return backend_->supportsWindow(); }
  // Creates a window for one-sided access. With a tensor all ranks must call it, as for
  // TorchCommWindow::tensor_register().
  // Throws: CommError(kUnsupported) if the backend has no windows.
  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor = {});
  // Creates a window over new memory of `size_bytes` with `signal_size` slots (default 256); it is
  // the older form, and all ranks must call it. `cpu_buf`: host memory, whatever the device.
  // Throws: CommError(kUnsupported) if the backend has no windows, or no windows of host memory.
  std::shared_ptr<TorchCommWindow> window_allocate(size_t size_bytes, bool cpu_buf = false,
                                                   std::optional<size_t> signal_size = {});

  // The persistent all-gather: all ranks call all_gather_p_init() once and all_gather_p_exec() any
  // number of times. `output` has as many elements as the inputs of all ranks. The handle keeps
  // `output` until all_gather_p_free(), and is valid until the members change. These calls run no
  // hooks and are not recorded by the communicator.
  // Throws: CommError: kUnsupported if the backend has none; kInvalidArgument for an unknown handle
  // or a tensor that does not fit.
  using AllGatherPHandle = TorchCommBackend::AllGatherPHandle;
  AllGatherPHandle all_gather_p_init(at::Tensor& output, const AllGatherPInitOptions& options = {});
  WorkPtr all_gather_p_exec(AllGatherPHandle handle, const at::Tensor& input, bool async_op,
                            const AllGatherPExecOptions& options = {});
  void all_gather_p_free(AllGatherPHandle handle);

  // Returns: get_mem_allocator() of the backend.
  std::shared_ptr<c10::Allocator> getMemAllocator() const;
  // Registers the memory of a tensor before its first use, which is optional. The backend keeps the
  // memory until it is deregistered as many times as it was registered, until finalize(), or until
  // the members change.
  // Throws: CommError(kUnsupported) if the backend or its library has no registration.
  void tensor_register(const at::Tensor& tensor);
  void tensor_deregister(const at::Tensor& tensor);
  // Returns: the address of a device::TorchCommDeviceTransport in the memory of this rank's device.
  // All ranks must make the first call.
  // Throws: CommError(kUnsupported) if the communicator has no kernels.
  int64_t get_device_transport();

  // Returns: the text that names this member for reconfigure(). It stays the same until the next
  // reconfigure(); earlier texts remain valid.
  // Throws: CommError(kUnsupported) if the backend has no reconfigure().
  InitHandle getInitHandle() const;
  // Connects exactly the given members. All of them call it with the same handles and the same
  // uuid, which none of them has used before. The communicator must have been created with
  // enable_reconfigure.
  // Returns: a finished work. If a member failed or did not call it, the work has failed and there
  // are no members.
  // Blocks: until the members are connected, the timeout has passed, or abort() was called.
  // Throws: CommError for a wrong call, which changes nothing: kInvalidArgument, or kUnsupported
  // without enable_reconfigure. The host language may interrupt the call; then the members may have
  // changed.
  WorkPtr reconfigure(const ReconfigureOptions& options);
  // Returns: the uuid of the reconfigure() that connected the present members, equal on all of
  // them. It has no value if there are no members, or if they came from new_comm() or split().
  std::optional<int64_t> getMembership() const { return membership_; }
  // Aborts the operations in flight; later operations throw. In a forked child it does nothing.
  // Throws: CommError(kUnsupported) if the backend has no abort().
  // Threads: any.
  void abort();
  bool isAbortSupported() const;
  // Returns: true after abort(), and after a failure that has ended the communicator.
  // Threads: any.
  bool isAborted() const;
  // Sets the default timeout of later operations; 0 means kDefaultTimeout.
  // Throws: CommError: kInvalidArgument if it is negative or over 1e9 s, kUnsupported if the
  // backend cannot change it.
  void setTimeout(std::chrono::milliseconds timeout);
  // Sets default hints of later operations.
  // Throws: CommError(kUnsupported) if the backend cannot change them.
  void setHints(const Hints& hints);

  // Hooks: see torchcomms/hooks.hpp. A hook stays registered if its handle is destroyed. Splits do
  // not inherit hooks.
  std::unique_ptr<RemovableHandle> registerPreHook(PreHook hook);
  std::unique_ptr<RemovableHandle> registerPostHook(PostHook hook);
  std::unique_ptr<RemovableHandle> registerAbortHook(AbortHook hook);
  std::unique_ptr<RemovableHandle> registerGraphReplayHook(GraphReplayHook hook);

 private:
  friend TC_API std::unique_ptr<RemovableHandle> register_observer(
      TorchComm& comm, std::shared_ptr<OperationObserver> observer);
  struct Hooks;
  // `parent`: the communicator that was split; null for others.
  TorchComm(std::shared_ptr<TorchCommBackend> backend, std::string backend_name,
            const TorchComm* parent = nullptr);

  template <class Op>
  WorkPtr run(const Op& op);
  // Throws: what a hook throws. The observers have then seen that the operation is refused.
  template <class Op>
  void run_pre_hooks(const Op& op, size_t op_id);
  // Calls the backend, through copies in host memory if a tensor is on a GPU and the backend cannot
  // use it there.
  template <class Op>
  WorkPtr dispatch_or_stage(const Op& op);
  // Returns when the backend has received all staged operations. Call it before other calls of the
  // backend.
  void flush_staging();
  // Leaks the backend instead of finalizing it, because threads are inside calls that will not
  // return.
  void abandon_backend();
  // Runs an operation whose result is not a work: `make` runs between the begin event and the end
  // event. `post` makes the arguments of the post-hooks from the result. A null result runs no
  // post-hooks.
  template <class Op, class Make, class Post>
  auto run_constructing(const Op& op, const Make& make, const Post& post);
  template <class Make>
  std::shared_ptr<TorchCommWindow> makeWindow(bool registered, const Make& make);
  // Throws: CommError: kForked; kFinalized after finalize(), or while there are no members.
  void requireUsable(OpName op) const { requireUsable(opToString(op)); }
  void requireUsable(std::string_view op) const;
  bool isForked() const;
  // Throws: CommError(kForked).
  void requireOwnProcess(std::string_view op) const;
  // Throws: CommError: kForked; kFinalized after finalize().
  void requireNotFinalized(std::string_view op) const;
  bool isFinalized() const { return finalized_ && capabilities_.final_finalize; }
  // Throws: CommError(kFinalized) with the reason why there are no members, or the backend's error.
  [[noreturn]] void refuseUnconnected(std::string_view op) const;
  // `place`: a rank or a size, negative while there are no members.
  // Returns: `place`.
  // Throws: CommError(kFinalized) without members: see Capabilities::place_before_members.
  int require_connected(std::string_view op, int place) const;
  CommFacts facts() const;
  template <class Op>
  ProfiledOperation profiler_metadata(const Op& op, const base::OpRecord& record) const;
  // Fills in the numbers of an operation that is about to begin: communicator, sequence, operation
  // id.
  void assign_sequence(base::OpRecord& record, size_t op_id);
  // `uuid`: of the reconfigure() that may have changed the members.
  void refreshMembership(std::optional<int64_t> uuid = {});
  // Returns: the global ranks of the members; empty if they are not known.
  std::vector<int> globalRanks() const;

  std::shared_ptr<TorchCommBackend> backend_;
  std::string backend_name_;
  Capabilities capabilities_;
  std::string name_;
  int rank_ = -1, size_ = -1;  // cached; -1 while not connected
  std::optional<int64_t> membership_;
  // The global rank of this process, or -1 if it is not known. It is set only if the ranks of this
  // communicator are not those of the job.
  std::optional<int> global_rank_;
  std::string unconnected_reason_;  // why the last reconfigure() failed, for error texts
  bool is_reconfigurable_ =
      false;                // has reconfigure(), or was split from a communicator that has it
  uint32_t record_id_ = 0;  // number of this communicator in the event ring
  uint64_t sequence_ = 0;   // operations that this rank has issued
  std::unique_ptr<base::OpOrder> order_;
  uint64_t fork_generation_ = 0;
  std::atomic<bool> finalized_{false};
  std::unique_ptr<ActiveCalls> active_calls_;
  std::shared_ptr<Hooks> hooks_;
  std::shared_ptr<UnobservedFailureGuard> failure_guard_;  // null if failures need not be observed
  std::unique_ptr<Staging> staging_;                       // null until an operation needs it
};

// Creates a communicator of all ranks of the job. All ranks must call it. With
// options.enable_reconfigure the call connects no ranks, and reconfigure() does.
// Blocks: until all ranks are connected, or options.timeout has passed.
// TORCHCOMM_STORE_TIMEOUT_SECONDS replaces that timeout for reaching the store,
// TORCHCOMM_INIT_TIMEOUT_SECONDS for the arrival and connection of the ranks.
// Throws: CommError(kTimeout) with the phase, the address and the missing ranks. kMismatch if ranks
// disagree. kUnsupported for enable_reconfigure on a backend that has no reconfigure(). Also
// kBackendUnavailable, kInvalidArgument, kPeerFailed and kResourceExhausted.
TC_API std::shared_ptr<TorchComm> new_comm(const std::string& backend, at::Device device,
                                           const std::string& name,
                                           const CommOptions& options = {});

// Returns: the memory allocator of a backend: one object per process and backend.
// Throws: CommError(kUnsupported) if the backend has none, or is not loaded.
TC_API std::shared_ptr<c10::Allocator> get_mem_allocator(const std::string& backend);

// Sets the next operation id to 0. Operation ids are global to the process.
TC_API void resetGlobalOpIdGenerator();

}  // namespace torch::comms
