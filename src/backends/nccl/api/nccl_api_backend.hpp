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

// A vendor's communication library: NCCL, RCCL, RCCLX or oneCCL, which is a row of one table. GPU
// tensors; CPU tensors with a library that says it works on host memory.
//
// Operations run on the current stream, asynchronous ones on a stream of the communicator's unless
// hint nccl::use_current_stream says otherwise; one communicator's run in the order of their calls.
// The host never blocks for them, but for CPU tensors where torch itself runs on the host.
//
// An operation that fails, or takes longer than its limit, ends the communicator on this rank: all
// later calls raise the same error, and isAborted() is true. Outputs are undefined then.
//
// Made with enable_reconfigure it has no members (rank and size are -1, which communicators refuse
// to tell) until reconfigure(), which may be called again and again, also after a failure. What is
// under way when members have met is aborted, but synchronous operations have a second to end.
// Splits, whose communicators are their own, go on. Of a failed one the work is not completed, and
// there are no members.
//
// Operations in graphs have their limits in each replay, where the runtime can tell;
// describe_entries() says.
class TC_API NcclApiBackend : public TorchCommBackend,
                              public BackendDiagnostics,
                              public std::enable_shared_from_this<NcclApiBackend> {
 public:
  ~NcclApiBackend() override;

  void init(at::Device device, const std::string& name, const CommOptions& options) override;
  // The same where rank and size are known without a launcher, so that ranks may be threads.
  void init(at::Device device, const bootstrap::LaunchInfo& launch, const std::string& name,
            const CommOptions& options);
  // Waits for what is under way. Throws a failure that no call has raised yet.
  void finalize() override;

  // Throw CommError(kFinalized) after finalize().
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

  // Collective over all ranks of this communicator: those that go nowhere pass an empty list.
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;
  void setTimeout(std::chrono::milliseconds timeout) override;

  // Windows of the library's own, where it has them. Collective where there is memory; see
  // vendor_window.hpp.
  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor) override;
  std::shared_ptr<TorchCommWindow> window_allocate(size_t size_bytes, bool cpu_buf,
                                                   size_t signal_size) override;

  // Tell the library of memory that operations will use. It is kept until it is deregistered as
  // often, or the communicator's members change, or end.
  void tensor_register(const at::Tensor& tensor) override;
  void tensor_deregister(const at::Tensor& tensor) override;
  // all_gather_single() into an output that the library, where it can, is told of ahead. Handles of
  // members that are gone can be freed, no more.
  AllGatherPHandle all_gather_p_init(at::Tensor& output,
                                     const AllGatherPInitOptions& options) override;
  WorkPtr all_gather_p_exec(AllGatherPHandle handle, const at::Tensor& input, bool async_op,
                            const AllGatherPExecOptions& options) override;
  void all_gather_p_free(AllGatherPHandle handle) override;
  // Of the library's memory; needs no init().
  std::shared_ptr<c10::Allocator> make_allocator() const;

  // Ends this communicator here, and the others' as soon as they wait for it or call it: with
  // kPeerFailed. Where there is no side channel nobody tells them, and what waits for this rank may
  // go on without its data.
  void abort() override;
  bool isAborted() const override;
  // Why it has failed, which may be found in this call. Any thread.
  std::optional<CommError> failure() const;
  // Waits until nothing is under way any more, which may take as long as the limits of what is. Not
  // for threads of the program.
  void wait_idle() const;
  // Whether something of it may run that no work is for: operations in graphs, also in those that
  // have gone, whose last replay may be under way.
  virtual bool may_still_run() const;
  void announceAbort() noexcept override;

  InitHandle getInitHandle() const override;
  WorkPtr reconfigure(const ReconfigureOptions& options) override;

  std::map<std::string, std::string> describe_entries() const override;
  std::map<std::string, uint64_t> memory_usage() const override;
  void set_unowned_failure_callback(std::function<void(TorchWork&)> met) override {
    on_unowned_failure_ = std::move(met);
  }
  uint64_t comm_identity() const override { return identity_; }
  std::shared_ptr<OperationObserver> operation_observer() override;
  void registerGraphReplayHook(int64_t id, GraphReplayHook hook) override;

  // The library's communicator, as a number.
  int64_t communicator_address() const;

 protected:
  // Ctrl-C has ended a call that other ranks may wait for: the lane fails, and what it came from is
  // thrown.
  [[noreturn]] static void abort_on_interrupt(const Interrupted& by, const nccl::NcclCall& call,
                                              nccl::LaunchQueue& lane);
  // `backend`: the name in new_comm.
  NcclApiBackend(const nccl::Vendor& vendor, std::string backend);

  // Whether messages of a single call have communicators of pairs of ranks to themselves.
  virtual bool has_pair_communicators() const { return false; }
  // Whether calls may have hints in older spellings.
  virtual bool accepts_legacy_hints() const { return false; }
  // Of the same vendor, not connected; with the name a split's has.
  virtual std::shared_ptr<NcclApiBackend> make_child() const = 0;
  // The library, bound. Throws CommError without context.
  virtual nccl::VendorLibrary load_library() const;
  // What else it reads of the hints, which it may translate, before anybody is met. Throws
  // CommError without context.
  virtual void parse_options(CommOptions&) {}
  // All members have met, and will connect when this has returned on all ranks; not of a split.
  // False: there was nothing to do.
  virtual bool prepare(const Rendezvous&, const nccl::NcclDevice&) { return false; }
  // There is nothing to prepare, so that the library may connect meanwhile.
  virtual bool can_skip_prepare() const { return true; }
  virtual void on_connected() {}
  // An operation has been called, and nothing of it been done. Of the thread that calls it. What it
  // throws ends the communicator, as it would in the operation.
  virtual void before_operation(const nccl::NcclCall&) {}
  // An operation is enqueued next, by the same thread. May throw CommError without context.
  virtual void before_launch(const OperationOptions&) {}
  // In the place of init(), of members who have met already. `connect` makes the communicator on
  // the device, which is current; null leaves this one as it was.
  struct MemberRanks {
    int rank;
    std::vector<int> ranks;  // see getRanks()
  };
  using Connect = std::function<nccl::abi::Comm(const nccl::NcclDevice&)>;
  bool init_from_members(const MemberRanks& membership, at::Device device, const std::string& name,
                         const CommOptions& options, const Connect& connect);
  // `error`, or kStaleGeneration if that is known by now to be the reason.
  virtual CommError explain_error(const CommError& error);
  const nccl::Vendor& vendor() const noexcept { return vendor_; }
  // Null before init().
  const nccl::VendorLibrary* library() const noexcept { return library_.get(); }
  // Null before init() and after finalize().
  nccl::LaunchQueue* launch_queue() const noexcept { return launch_queue_.get(); }
  // Of what waits for other ranks beside the operations, which do not wait for it: with the same
  // members, and a stream of its own. Made at first use.
  nccl::LaunchQueue& wait_queue();
  // Null where nothing has waited.
  nccl::LaunchQueue* wait_queue_if_any() const;

  // Throws CommError: kFinalized, or why the communicator has failed.
  nccl::NcclCall begin_call(OpName op, bool async_op, const OperationOptions& options,
                            std::string_view name = {});
  // What an operation works on, undefined tensors aside; of the expression that names it alone.
  struct OperandTensors {
    std::initializer_list<const at::Tensor*> single;
    std::initializer_list<const Tensors*> lists;
  };
  nccl::KeptStorages retain_storages(const nccl::NcclCall& call,
                                     const OperandTensors& tensors) const;
  // Every member's `own`, as many bytes on all, one after the other in host memory. Collective;
  // returns when all have called it. Of `options` the limit counts.
  at::Tensor gather_bytes(std::span<const std::byte> own, const OperationOptions& options = {});

  // Of a call on a window, which is under way from now until the work ends that `body` gives: for
  // what other ranks are told. `peer`: whom it gives something, or has it from; -1: nobody's.
  // `tensor`: what it puts; null: nothing.
  struct WindowCall {
    std::string_view name;
    bool is_outgoing;
    int peer;
    const at::Tensor* tensor = nullptr;
  };
  WorkPtr log_window_call(const WindowCall& what, const std::function<WorkPtr()>& body);

  // Launches `body(library, communicator, stream)` as one group on `lane`.
  // `kept`: the memory of an asynchronous operation.
  template <class Body>
  WorkPtr launch(nccl::LaunchQueue& lane, const nccl::NcclCall& call,
                 const OperationOptions& options, nccl::KeptStorages kept, const Body& body);
  // The operation of all ranks on `tensors`.
  template <class Body>
  WorkPtr run(const nccl::NcclCall& call, const OperationOptions& options,
              const OperandTensors& tensors, const Body& body);
  // Operations of a rank alone, without the library: `output` is `input`, by the factor of the
  // reduction if it has one.
  WorkPtr copy_single_rank(const nccl::NcclCall& call, const OperationOptions& options,
                           const at::Tensor& output, const at::Tensor& input);
  WorkPtr reduce_single_rank(const nccl::NcclCall& call, const OperationOptions& options,
                             const ReduceOp& op, const at::Tensor& output, const at::Tensor& input);

 private:
  friend class nccl::NcclWindow;
  // The same with a reduction of `input` into `output`, which `body` also gets; of one rank perhaps
  // without `body`.
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
  nccl::LaunchQueue& queue_to(int peer, const nccl::NcclCall& call);
  // A communicator with `peer` alone. Throws CommError, also where some rank fails meanwhile.
  std::shared_ptr<nccl::LaunchQueue> connect_pair(int peer, const nccl::NcclCall& call);
  nccl::LaunchQueue& add_pair(int peer, std::shared_ptr<nccl::LaunchQueue> lane);
  nccl::PersistentAllGather& require_persistent(AllGatherPHandle handle, const char* op) const;
  std::shared_ptr<nccl::NcclWindow> make_window(const char* method);
  template <class Body>
  void with_registrations(const char* op, const at::Tensor& tensor, const Body& body);
  // Why the lane's communicator has failed, if it has.
  void raise_failure(nccl::LaunchQueue& lane);
  [[noreturn]] void throw_failure(const CommError& error, const nccl::NcclCall& call,
                                  nccl::LaunchQueue& lane);
  // `error`, and if a limit has passed, where the other ranks are, whose words it waits for. Before
  // they hear that this one ends.
  static CommError with_peer_progress(const CommError& error, nccl::LaunchQueue& lane);
  // Takes the options over, and loads the library: before anybody is met. `context` is for errors.
  void begin_init(const std::string& name, const CommOptions& options, const Context& context);
  // What a communicator needs that meets its members later.
  void init_without_members(at::Device device);
  // With hint check_calls: returns when all ranks have called the same. Throws CommError.
  void check_mismatch(const nccl::NcclCall& call);
  // Throws CommError where the side channel knows that another rank has failed.
  void raise_peer_failure(const Context& context) const;
  nccl::WaitOptions make_wait(const nccl::NcclCall& now) const;
  // kSizeMismatch: the library has put `count` ranks together, in `made`, of whom `ranks` names
  // another number.
  CommError member_count_error(const std::vector<int>& ranks, int count, const nccl::NcclCall& now,
                               NcclApiBackend& made) const;
  // The communicator of these members, made of the one before; null: there is none to be had so.
  using Shrink = std::function<std::shared_ptr<nccl::Communicator>(
      const nccl::WaitOptions&, const std::shared_ptr<nccl::NcclDevice>&)>;
  // What there is of a start-up when the ranks have met: the device, and a connection of the
  // library that has begun as soon as all were there, since it takes nearly all of the time.
  struct PendingConnect;
  std::shared_ptr<nccl::NcclDevice> open_device(at::Device device, int rank) const;
  // For rendezvous(): fills `begun`, which outlives it.
  OverlappedConnect overlapped_connect(at::Device device, PendingConnect& begun);
  void connect_members(at::Device device, const Rendezvous& met, const Shrink& of_before = {},
                       PendingConnect* begun = nullptr);
  // The same of members that have met: where all of them can make it of `before`, and are some of
  // its ranks. Collective.
  std::shared_ptr<nccl::Communicator> shrink(nccl::LaunchQueue* before,
                                             const ReconfigureMembers& members,
                                             const Rendezvous& met, const nccl::WaitOptions& wait,
                                             const std::shared_ptr<nccl::NcclDevice>& device);
  // `free_bytes`: what the device had before any rank connected.
  void attach_communicator(std::shared_ptr<nccl::Communicator> communicator,
                           std::shared_ptr<nccl::NcclDevice> device, size_t free_bytes);
  std::shared_ptr<nccl::LaunchQueue> make_launch_queue(
      std::shared_ptr<nccl::Communicator> communicator, std::shared_ptr<nccl::NcclDevice> device);
  // Waits for what is under way on `lane`, and leaves its communicator in good order.
  void close_queue(nccl::LaunchQueue& lane, const nccl::NcclCall& call);
  void close_communicator(nccl::LaunchQueue& lane, const nccl::NcclCall& call);
  void teardown();
  // In good order: the other ranks are told that nothing is wrong here.
  void close_group_monitor() noexcept;
  using LaunchQueues = std::vector<std::shared_ptr<nccl::LaunchQueue>>;
  // All that are connected. Any thread.
  LaunchQueues launch_queues() const;
  // When one fails, all do. Any thread; waits for nobody.
  void on_queue_failed(const nccl::LaunchQueue& lane, const CommError& why);
  // Begins the abort hooks, once.
  void start_abort_hooks() noexcept;
  // Takes everything that is connected away from here.
  LaunchQueues detach();
  // Lets go of it. Waits for nothing.
  static void release(LaunchQueues lanes, bool may_block);
  void require_not_finalized(const char* op) const;

  const nccl::Vendor& vendor_;
  const std::string backend_;
  at::Device device_;
  CommOptions options_;
  std::unique_ptr<nccl::NcclOptions> nccl_options_;
  std::string name_;
  int rank_ = -1, size_ = -1;
  uint64_t identity_ = 0;   // of these members
  std::vector<int> ranks_;  // of the members, in the first parent
  std::vector<InitPhase> phases_;
  uint64_t library_bytes_ = 0;  // of device memory, that making the communicator took
  std::string version_;
  std::shared_ptr<const nccl::VendorLibrary> library_;
  mutable std::mutex mutex_;  // guards failure_, and lane_ and pairs_ where other threads look
  std::shared_ptr<nccl::LaunchQueue> launch_queue_;  // null before init() and after finalize()
  static constexpr int kWaitQueueKey = -1;           // instead of a peer: wait_queue()
  std::map<int, std::shared_ptr<nccl::LaunchQueue>> peer_queues_;  // by peer
  std::unique_ptr<Reconfiguration> reconfiguration_;       // null without enable_reconfigure
  c10::intrusive_ptr<c10d::Store> pair_store_;             // null where none was given
  at::Tensor barrier_tensor_;                              // what barrier() reduces
  std::shared_ptr<common::CollectiveLog> collective_log_;  // of these members
  std::shared_ptr<monitor::GroupMonitor> group_monitor_;   // null: no side channel
  std::string connect_note_;                               // by reconfigure(); "": as ever
  uint64_t connect_begin_ns_ = 0;                          // no rank was connected before
  uint64_t split_count_ = 0;                               // of these members, so far
  std::map<AllGatherPHandle, std::unique_ptr<nccl::PersistentAllGather>> persistent_;
  std::optional<CommError> failure_;  // of a lane that is gone
  const std::shared_ptr<AbortHookRunner> abort_hook_runner_;
  std::atomic<bool> has_replay_hooks_{false};  // there were hooks for them
  std::function<void(TorchWork&)> on_unowned_failure_;
  std::atomic<bool> is_finalized_{false};  // any thread asks for its rank
  uint64_t fork_generation_;
};

}  // namespace torch::comms
