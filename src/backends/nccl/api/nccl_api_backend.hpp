#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torchcomms/backend.hpp>
#include <torchcomms/base/error.hpp>

#include "backends/nccl/graphs/kept_storages.hpp"
#include "core/backend/backend_diagnostics.hpp"
#include "vendor/abi.hpp"

namespace torch::comms {

class AbortHookRunner;
class Interrupted;
class Reconfiguration;
struct ReconfigureMembers;
struct OverlappedConnect;
struct Rendezvous;

namespace bootstrap {
struct LaunchInfo;
}
namespace monitor {
class GroupMonitor;
}
namespace common {
class CollectiveLog;
}

namespace nccl {
struct WaitOptions;
class Communicator;
class NcclDevice;
class LaunchQueue;
class VendorLibrary;
struct NcclCall;
struct PersistentAllGather;
struct Vendor;
class NcclWindow;
struct NcclOptions;
}  // namespace nccl

// The backend over a vendor's communication library: NCCL, NCCLX, RCCL, RCCLX or oneCCL, each
// described by an nccl::Vendor. The kernels of backend ctran are such a library, too. It takes GPU
// tensors; CPU tensors if the library works on host memory.
//
// Synchronous operations, and all operations in a graph capture, run on the current stream. Other
// asynchronous operations run on a stream of the communicator, unless hint nccl::use_current_stream
// is set. Operations of one communicator run in the order of their calls. Synchronous operations
// wait on the host only for CPU tensors, where torch itself runs on the host. A call may also block
// while the library launches it, with hint check_calls, and while a pair of ranks connects.
//
// An operation that fails or exceeds its timeout aborts the communicator on this rank: all later
// calls raise the same error, and isAborted() is true. Outputs are undefined then. A call that is
// refused with kUnsupported, kInvalidArgument or kFinalized leaves the communicator usable.
//
// With enable_reconfigure the communicator has no members until reconfigure(). Its rank and size
// are -1, which TorchComm does not return to callers. reconfigure() may be called repeatedly, also
// after a failure. When the new members have arrived, operations in flight are aborted; synchronous
// operations get one second to finish first. Splits have communicators of their own and continue.
// If reconfigure() fails, its work has failed, or it throws the exception of an interrupt. There
// are no members then.
//
// Operations in CUDA graphs have their timeouts in each replay if the runtime supports graph
// markers; describe_entries() says whether it does.
class TC_API NcclApiBackend : public TorchCommBackend,
                              public BackendDiagnostics,
                              public std::enable_shared_from_this<NcclApiBackend> {
 public:
  ~NcclApiBackend() override;

  void init(at::Device device, const std::string& name, const CommOptions& options) override;
  // init() with rank and size given, for ranks that may be threads.
  void init(at::Device device, const bootstrap::LaunchInfo& launch, const std::string& name,
            const CommOptions& options);
  // Waits for operations in flight and closes the communicator. It is finalized also after an
  // exception.
  // Blocks: until operations in flight have ended, which their timeouts bound. Each library
  // communicator then has TORCHCOMM_TEARDOWN_TIMEOUT_SECONDS, otherwise the communicator's timeout,
  // to close.
  // Throws: a failure that no call has raised yet; kTimeout if the library does not close in time;
  // the exception of an interrupt.
  void finalize() override;

  // Throws: CommError(kFinalized) after finalize().
  int getRank() const override;
  int getSize() const override;
  std::string_view getBackendName() const override { return backend_; }
  std::string_view getBackendVersion() const override;
  std::string_view getCommName() const override { return name_; }
  const CommOptions& getOptions() const override { return options_; }
  const at::Device& getDevice() const override { return device_; }
  Capabilities capabilities() const override;
  std::vector<int> getRanks() const override { return ranks_; }
  bool isInitialized() const override { return size_ > 0; }
  std::vector<InitPhase> initPhases() const override { return phases_; }

  WorkPtr send(const at::Tensor& tensor, int dst, bool async_op,
               const SendOptions& options) override;
  WorkPtr recv(at::Tensor& tensor, int src, bool async_op, const RecvOptions& options) override;
  WorkPtr batch_op_issue(const std::vector<P2POp>& ops, bool async_op,
                         const BatchP2POptions& options) override;
  WorkPtr broadcast(at::Tensor& tensor, int root, bool async_op,
                    const BroadcastOptions& options) override;
  WorkPtr all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                     const AllReduceOptions& options) override;
  WorkPtr reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                 const ReduceOptions& options) override;
  WorkPtr all_gather(const Tensors& output, const at::Tensor& input, bool async_op,
                     const AllGatherOptions& options) override;
  WorkPtr all_gather_v(const Tensors& output, const at::Tensor& input, bool async_op,
                       const AllGatherOptions& options) override;
  WorkPtr all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllGatherSingleOptions& options) override;
  WorkPtr reduce_scatter(at::Tensor& output, const Tensors& input, const ReduceOp& op,
                         bool async_op, const ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_v(at::Tensor& output, const Tensors& input, const ReduceOp& op,
                           bool async_op, const ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_single(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                bool async_op, const ReduceScatterSingleOptions& options) override;
  WorkPtr all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllToAllSingleOptions& options) override;
  WorkPtr all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                              const Splits& output_split_sizes, const Splits& input_split_sizes,
                              bool async_op, const AllToAllvSingleOptions& options) override;
  WorkPtr all_to_all(const Tensors& output, const Tensors& input, bool async_op,
                     const AllToAllOptions& options) override;
  WorkPtr barrier(bool async_op, const BarrierOptions& options) override;
  WorkPtr scatter(at::Tensor& output, const Tensors& input, int root, bool async_op,
                  const ScatterOptions& options) override;
  WorkPtr gather(const Tensors& output, const at::Tensor& input, int root, bool async_op,
                 const GatherOptions& options) override;
  WorkPtr gather_single(at::Tensor& output, const at::Tensor& input, int root, bool async_op,
                        const GatherSingleOptions& options) override;

  // Collective over all ranks of this communicator; ranks that join no new communicator pass an
  // empty list.
  // Returns: null for an empty list.
  // Throws: CommError: kInvalidArgument if this rank is not in its own list; kMismatch if ranks
  // passed different lists, after which this communicator stays usable. Other errors of the library
  // abort this communicator.
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;
  void setTimeout(std::chrono::milliseconds timeout) override;

  // Windows of the library, if it has them. Collective if memory is given or allocated; see
  // nccl_window.hpp. `signal_size` is not used.
  // Throws: CommError(kUnsupported) if the library has no one-sided operations, or for cpu_buf with
  // GPU memory.
  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor) override;
  std::shared_ptr<TorchCommWindow> window_allocate(size_t size_bytes, bool cpu_buf,
                                                   size_t signal_size) override;

  // Register memory with the library and deregister it. The memory is kept until it is deregistered
  // as often as it was registered, or the communicator's members change or it ends.
  // Throws: CommError: kInvalidArgument for a tensor of another device, that is not contiguous or
  // that is not registered; kUnsupported if the library has no registration; kFinalized.
  void tensor_register(const at::Tensor& tensor) override;
  void tensor_deregister(const at::Tensor& tensor) override;
  // all_gather_single() into an output that is registered with the library in advance, if it
  // supports that. After the members have changed, a handle can only be freed.
  // Throws: CommError(kInvalidArgument) for an invalid handle or tensor.
  AllGatherPHandle all_gather_p_init(at::Tensor& output,
                                     const AllGatherPInitOptions& options) override;
  WorkPtr all_gather_p_exec(AllGatherPHandle handle, const at::Tensor& input, bool async_op,
                            const AllGatherPExecOptions& options) override;
  void all_gather_p_free(AllGatherPHandle handle) override;
  // Returns: an allocator of the library's memory. Needs no init().
  std::shared_ptr<c10::Allocator> make_allocator() const;

  // Aborts this communicator, and ends a reconfigure() that runs. Peers fail with kPeerFailed as
  // soon as they wait for this rank or call the communicator. Without the monitor network peers are
  // not notified, and operations that wait for this rank may complete without its data.
  // Blocks: as LaunchQueue::abort_and_wait() with `blocks`.
  // Throws: CommError(kUnsupported) if the library cannot abort.
  // Threads: any.
  void abort() override;
  bool isAborted() const override;
  // Returns: why the communicator has failed; nothing if it has not. This call may be the one that
  // finds the failure.
  // Threads: any.
  std::optional<CommError> failure() const;
  // Waits until no operation is in flight.
  // Blocks: as long as the timeouts of the operations in flight; no interrupt ends the wait.
  // Threads: any except threads of the program, which need the interrupt.
  void wait_idle() const;
  // True if kernels without a work may still run: a CUDA graph has captured operations of the
  // attached kernels. It stays true when the graph is destroyed, because the last replay may be
  // running. Operations of the library in graphs do not count.
  virtual bool may_still_run() const;
  void announceAbort() noexcept override;

  InitHandle getInitHandle() const override;
  WorkPtr reconfigure(const ReconfigureOptions& options) override;

  std::map<std::string, std::string> describe_entries() const override;
  std::map<std::string, uint64_t> memory_usage() const override;
  void set_unowned_failure_callback(std::function<void(TorchWork&)> callback) override {
    on_unowned_failure_ = std::move(callback);
  }
  uint64_t comm_identity() const override { return identity_; }
  std::shared_ptr<OperationObserver> operation_observer() override;
  void registerGraphReplayHook(int64_t id, GraphReplayHook hook) override;

  // Returns: the address of the library's communicator (ncclComm_t).
  // Throws: CommError(kFinalized) before init() and after finalize().
  int64_t communicator_address() const;

 protected:
  // Aborts the queue because Ctrl-C has ended a call that peers may wait for.
  // Blocks: until the abort hooks have run, at most 1 s.
  // Throws: the exception that interrupted the call.
  [[noreturn]] static void abort_on_interrupt(const Interrupted& interrupt,
                                              const nccl::NcclCall& call, nccl::LaunchQueue& queue);
  // `backend`: the name that new_comm() was called with.
  NcclApiBackend(const nccl::Vendor& vendor, std::string backend);

  // True if send() and recv() use a communicator for each pair of ranks.
  virtual bool has_pair_communicators() const { return false; }
  // True if calls may use hints in their older spellings.
  virtual bool accepts_legacy_hints() const { return false; }
  // Returns: an unconnected backend of the same class, for a split.
  virtual std::shared_ptr<NcclApiBackend> make_child() const = 0;
  // Returns: the loaded library.
  // Throws: CommError without context.
  virtual nccl::VendorLibrary load_library() const;
  // Reads the hints of a derived backend, which may also change them. Called before each
  // rendezvous, also in reconfigure(), and for a split.
  // Throws: CommError without context.
  virtual void parse_options(CommOptions&) {}
  // Prepares what needs all members, when all have arrived. If can_skip_prepare() is false, this
  // rank connects after it has returned. Not called for a split. Its exceptions end the start-up.
  // Returns: false if there was nothing to do.
  virtual bool prepare(const Rendezvous&, const nccl::NcclDevice&) { return false; }
  // True if there is nothing to prepare, so that the library may connect during the rendezvous.
  virtual bool can_skip_prepare() const { return true; }
  // Runs when init() or reconfigure() has connected the members. Not called for a split.
  virtual void on_connected() {}
  // Runs at the start of each operation, on the thread that calls it. An Interrupted or CommError
  // aborts the communicator, as in the operation itself; kUnsupported, kInvalidArgument and
  // kFinalized do not.
  virtual void before_operation(const nccl::NcclCall&) {}
  // Runs before each launch, on the same thread. May throw CommError without context.
  virtual void before_launch(const OperationOptions&) {}
  // Initializes from members that have arrived already, in place of init(). `connect` creates the
  // library's communicator on the current device, which this object then owns. If `connect` returns
  // null, this object stays unconnected.
  // Returns: false if `connect` returned null.
  struct MemberRanks {
    int rank;
    std::vector<int> ranks;  // see getRanks()
  };
  using Connect = std::function<nccl::abi::Comm(const nccl::NcclDevice&)>;
  bool init_from_members(const MemberRanks& membership, at::Device device, const std::string& name,
                         const CommOptions& options, const Connect& connect);
  // Returns: `error`; or kStaleGeneration for a kPeerFailed, kTimeout or kVendor, if this rank was
  // excluded from a reconfigure() meanwhile.
  virtual CommError explain_error(const CommError& error);
  const nccl::Vendor& vendor() const noexcept { return vendor_; }
  // Returns: null before init().
  const nccl::VendorLibrary* library() const noexcept { return library_.get(); }
  // Returns: null before init(), after finalize(), and while there are no members.
  nccl::LaunchQueue* launch_queue() const noexcept { return launch_queue_.get(); }
  // Returns: the queue for steps that wait for peers and that operations must not wait for. It uses
  // the same communicator and a stream of its own. Created at first use.
  // Threads: only the thread that calls operations; also for wait_queue_if_any().
  nccl::LaunchQueue& wait_queue();
  // Returns: the wait queue; null if it has not been created.
  nccl::LaunchQueue* wait_queue_if_any() const;

  // Begins an operation: checks the communicator's state and returns the call. `name`: see
  // NcclCall.
  // Blocks: with hint check_calls, until all ranks have called the operation, at most its timeout.
  // Throws: CommError: kFinalized, kForked, kStaleGeneration, why the communicator has failed, or
  // what before_operation() throws; the exception of an interrupt.
  nccl::NcclCall begin_call(OpName op, bool async_op, const OperationOptions& options,
                            std::string_view name = {});
  // The tensors of an operation; undefined tensors are ignored.
  // Lifetime: only within the expression that creates it.
  struct OperandTensors {
    std::initializer_list<const at::Tensor*> single;
    std::initializer_list<const Tensors*> lists;
  };
  // Returns: the memory that the queue must keep until the operation is done; empty for a
  // synchronous operation on GPU memory.
  nccl::KeptStorages retain_storages(const nccl::NcclCall& call,
                                     const OperandTensors& tensors) const;
  // Gathers `own`, which has the same size on all members, in rank order in host memory, by an
  // all_gather_single() with `options`. Collective.
  // Blocks: until all members have called it.
  at::Tensor gather_bytes(std::span<const std::byte> own, const OperationOptions& options = {});

  // Records a window call in the collective log, from now until the work that `body` returns ends.
  // `peer`: the rank that data or a signal goes to or comes from; -1: none. `tensor`: what is put;
  // null: nothing.
  struct WindowCall {
    std::string_view name;
    bool is_outgoing;
    int peer;
    const at::Tensor* tensor = nullptr;
  };
  WorkPtr log_window_call(const WindowCall& call, const std::function<WorkPtr()>& body);

  // Launches `body(NcclLaunch)` on `queue`: as one group, or as a single call if it returns
  // abi::Result. `kept`: see retain_storages(). A synchronous operation on CPU tensors is done on
  // return.
  // Throws: CommError with the context of `call`. It aborts the communicator, except kUnsupported,
  // kInvalidArgument and kFinalized. The exception of an interrupt, after an abort.
  template <class Body>
  WorkPtr launch(nccl::LaunchQueue& queue, const nccl::NcclCall& call,
                 const OperationOptions& options, nccl::KeptStorages kept, const Body& body);
  // Launches an operation on `tensors` on the communicator's queue, as launch().
  template <class Body>
  WorkPtr run(const nccl::NcclCall& call, const OperationOptions& options,
              const OperandTensors& tensors, const Body& body);
  // Operations of a communicator with one rank, without the library: `output` becomes `input`,
  // times the factor of the reduction if it has one.
  WorkPtr copy_single_rank(const nccl::NcclCall& call, const OperationOptions& options,
                           const at::Tensor& output, const at::Tensor& input);
  WorkPtr reduce_single_rank(const nccl::NcclCall& call, const OperationOptions& options,
                             const ReduceOp& op, const at::Tensor& output, const at::Tensor& input);

 private:
  friend class nccl::NcclWindow;
  // run() for a reduction of `input` into `output`; `body` also gets the NcclReduction. With one
  // rank `body` may not be called.
  template <class Body>
  WorkPtr reduce(const nccl::NcclCall& call, const OperationOptions& options, const ReduceOp& op,
                 const at::Tensor& output, const at::Tensor& input, const OperandTensors& tensors,
                 const Body& body);
  WorkPtr gather_in_parts(const nccl::NcclCall& call, const OperationOptions& options,
                          const Tensors& output, const at::Tensor& input);
  WorkPtr scatter_reduced(const nccl::NcclCall& call, const OperationOptions& options,
                          const at::Tensor& output, const Tensors& input, const ReduceOp& op);
  WorkPtr gather_slots(const nccl::NcclCall& call, const OperationOptions& options,
                       const Tensors& slots, const at::Tensor& input, int root);
  WorkPtr send_or_recv(const nccl::NcclCall& call, const OperationOptions& options,
                       const P2POp& op);
  // Returns: the queue for messages between this rank and `peer`. With has_pair_communicators() it
  // belongs to the pair, and the first call connects it.
  nccl::LaunchQueue& queue_to(int peer, const nccl::NcclCall& call);
  // Connects a communicator of this rank and `peer`.
  // Blocks: until `peer` connects, at most for the timeout of `call`.
  // Throws: CommError, also if another rank fails meanwhile.
  std::shared_ptr<nccl::LaunchQueue> connect_pair(int peer, const nccl::NcclCall& call);
  nccl::LaunchQueue& add_pair(int peer, std::shared_ptr<nccl::LaunchQueue> queue);
  nccl::PersistentAllGather& require_persistent(AllGatherPHandle handle, const char* op) const;
  std::shared_ptr<nccl::NcclWindow> make_window(const char* method);
  template <class Body>
  void with_registrations(const char* op, const at::Tensor& tensor, const Body& body);
  // Throws: why the queue's communicator has failed, if it has.
  void raise_failure(nccl::LaunchQueue& queue);
  // Aborts `queue` because of `error`, unless that is kUnsupported, kInvalidArgument or kFinalized.
  // Throws: the first failure of the queue's communicator; `error` if it has none.
  [[noreturn]] void throw_failure(const CommError& error, const nccl::NcclCall& call,
                                  nccl::LaunchQueue& queue);
  // Returns: `error`; a timeout gets the progress of the peers. Call it before the abort is
  // announced to them.
  // Blocks: for a timeout, until the peers have replied, at most 0.6 s.
  static CommError with_peer_progress(const CommError& error, nccl::LaunchQueue& queue);
  // Stores the options and loads the library, before the rendezvous. `context` is for errors.
  void begin_init(const std::string& name, const CommOptions& options, const Context& context);
  // Initializes a communicator whose members connect later, in reconfigure().
  void init_without_members(at::Device device);
  // Implements hint check_calls: waits until all ranks have called the same operation.
  // Throws: CommError.
  void check_mismatch(const nccl::NcclCall& call);
  // Throws: CommError if the monitor reports a failure.
  void raise_peer_failure(const Context& context) const;
  // Returns: how to wait for the library outside of an operation. The wait ends when a peer fails.
  // Lifetime: `now` must outlive the result.
  nccl::WaitOptions make_wait(const nccl::NcclCall& now) const;
  // Returns: an error kMismatch: the library has grouped `count` ranks in `child`, but `ranks` has
  // a different number. `child` is used to find out which ranks are missing.
  CommError member_count_error(const std::vector<int>& ranks, int count, const nccl::NcclCall& now,
                               NcclApiBackend& child) const;
  // Creates the library's communicator by shrinking the previous one; returns null if that is not
  // possible.
  using Shrink = std::function<std::shared_ptr<nccl::Communicator>(
      const nccl::WaitOptions&, const std::shared_ptr<nccl::NcclDevice>&)>;
  // The state of a start-up during the rendezvous: the device, and the library's connect. The
  // connect takes nearly all of the time, so it begins as soon as all ranks have arrived.
  struct PendingConnect;
  std::shared_ptr<nccl::NcclDevice> open_device(at::Device device, int rank) const;
  // Returns: the callbacks for rendezvous(), which fill `pending`.
  // Lifetime: `pending` must outlive the result.
  OverlappedConnect overlapped_connect(at::Device device, PendingConnect& pending);
  // Opens the monitor group and connects the library's communicator with the ranks of `rendezvous`.
  // `pending`: the connect that overlapped_connect() has begun; null or without a connect: none.
  void connect_members(at::Device device, const Rendezvous& rendezvous,
                       const Shrink& shrink_previous = {}, PendingConnect* pending = nullptr);
  // Creates the communicator of these members from `before`, if all of them are ranks of it and can
  // do so. Collective.
  // Returns: null if that is not possible.
  std::shared_ptr<nccl::Communicator> shrink(nccl::LaunchQueue* before,
                                             const ReconfigureMembers& members,
                                             const Rendezvous& rendezvous,
                                             const nccl::WaitOptions& wait,
                                             const std::shared_ptr<nccl::NcclDevice>& device);
  // `free_bytes`: free memory of the device before any rank connected.
  void attach_communicator(std::shared_ptr<nccl::Communicator> communicator,
                           std::shared_ptr<nccl::NcclDevice> device, size_t free_bytes);
  std::shared_ptr<nccl::LaunchQueue> make_launch_queue(
      std::shared_ptr<nccl::Communicator> communicator, std::shared_ptr<nccl::NcclDevice> device);
  // Waits for operations in flight on `queue`, and closes its communicator cleanly.
  // Throws: the communicator's failure, if no call has raised it.
  void close_queue(nccl::LaunchQueue& queue, const nccl::NcclCall& call);
  void close_communicator(nccl::LaunchQueue& queue, const nccl::NcclCall& call);
  void teardown();
  // Closes the monitor group cleanly, so that peers do not report this rank as failed.
  void close_group_monitor() noexcept;
  using LaunchQueues = std::vector<std::shared_ptr<nccl::LaunchQueue>>;
  // Returns: all queues of connected communicators.
  // Threads: any.
  LaunchQueues launch_queues() const;
  // Starts the abort hooks, and aborts all queues because one has failed. Does not block.
  // Threads: any.
  void on_queue_failed(const nccl::LaunchQueue& queue, const CommError& why);
  // Starts the abort hooks, once.
  void start_abort_hooks() noexcept;
  // Removes all queues from this object and returns them.
  LaunchQueues detach();
  // Releases the queues in the background, when their operations are done. With `may_block`, idle
  // queues are released on this thread.
  static void release(LaunchQueues queues, bool may_block);
  void require_not_finalized(const char* op) const;

  const nccl::Vendor& vendor_;
  const std::string backend_;
  at::Device device_;
  CommOptions options_;
  std::unique_ptr<nccl::NcclOptions> nccl_options_;
  std::string name_;
  int rank_ = -1, size_ = -1;
  uint64_t identity_ = 0;   // of these members, see comm_identity()
  std::vector<int> ranks_;  // of the members, in the root communicator
  std::vector<InitPhase> phases_;
  uint64_t library_bytes_ = 0;  // device memory that the communicator took
  std::string version_;
  std::shared_ptr<const nccl::VendorLibrary> library_;
  mutable std::mutex
      mutex_;  // guards failure_, and launch_queue_ and peer_queues_ for other threads
  std::shared_ptr<nccl::LaunchQueue> launch_queue_;  // null before init() and after finalize()
  static constexpr int kWaitQueueKey = -1;           // key of wait_queue() in peer_queues_
  std::map<int, std::shared_ptr<nccl::LaunchQueue>> peer_queues_;  // by peer
  std::unique_ptr<Reconfiguration> reconfiguration_;       // null without enable_reconfigure
  c10::intrusive_ptr<c10d::Store> pair_store_;             // for pairs of ranks; null: no pairs
  at::Tensor barrier_tensor_;                              // the operand of barrier()
  std::shared_ptr<common::CollectiveLog> collective_log_;  // of these members
  std::shared_ptr<monitor::GroupMonitor> group_monitor_;   // null: the monitor network is not used
  std::string connect_note_;       // how reconfigure() connected the members; else ""
  uint64_t connect_begin_ns_ = 0;  // no rank connected before this time (tracing::now_ns())
  uint64_t split_count_ = 0;       // splits of these members so far
  std::map<AllGatherPHandle, std::unique_ptr<nccl::PersistentAllGather>> persistent_;
  std::optional<CommError> failure_;  // of a queue that was released
  const std::shared_ptr<AbortHookRunner> abort_hook_runner_;
  std::atomic<bool> has_replay_hooks_{false};  // a replay hook has been registered
  std::function<void(TorchWork&)> on_unowned_failure_;
  std::atomic<bool> is_finalized_{false};  // atomic: any thread may call getRank()
  uint64_t fork_generation_;
};

}  // namespace torch::comms
