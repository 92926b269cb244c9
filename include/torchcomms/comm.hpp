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

// A group of ranks that communicate. Every operation runs one path: it becomes an Operation value,
// is checked (a wrong call throws before anything is sent), meets the pre-hooks, is recorded,
// issued by the backend, and meets the post-hooks.
//
// Threads: the caller serialises calls on one communicator; abort() and isAborted() from any
// thread, and finalize(), which waits for the calls of others, also on windows. Failure: CommError.
// Every operation returns a work, synchronous ones a finished one.
class TC_API TorchComm : public std::enable_shared_from_this<TorchComm> {
 public:
  // Use new_comm(). `backend_name` is the name asked for ("nccl-lazy"), whatever the backend calls
  // itself.
  static std::shared_ptr<TorchComm> wrap(std::shared_ptr<TorchCommBackend> backend,
                                         std::string backend_name);
  ~TorchComm();
  TorchComm(const TorchComm&) = delete;
  TorchComm& operator=(const TorchComm&) = delete;

  // Releases what the communicator holds. A second call throws CommError(kFinalized) where the
  // backend is used up by the first.
  void finalize();

  // Of a communicator without members they are -1, or throw CommError(kFinalized):
  // Capabilities::place_before_members.
  int getRank() const;
  int getSize() const;
  // It has members: false before the first reconfigure(), and after one that failed.
  bool isConnected() const { return backend_->isInitialized(); }
  std::vector<int> getRanks() const;
  std::string_view getCommName() const;
  const CommOptions& getOptions() const;
  const at::Device& getDevice() const;
  const std::string& getBackend() const { return backend_name_; }
  std::string_view getBackendVersion() const;
  const std::shared_ptr<TorchCommBackend>& getBackendImpl() const { return backend_; }
  const Capabilities& capabilities() const { return capabilities_; }
  // What the backend tells of itself and its members, as far as it does. Empty after finalize().
  struct BackendFacts {
    std::vector<std::string> links;
    std::vector<TorchCommBackend::AlgorithmRange> algorithms;
    std::map<std::string, uint64_t> memory;  // bytes on the device, by what they are for
    std::map<std::string, std::string> notes;
  };
  BackendFacts getBackendFacts() const;
  // How it stands, for people: "rank 0 of 4", "rank 0 of 4, ended", "finalized", "not connected".
  std::string standing() const;

  // `tensor` arguments must be contiguous, of one dtype and on a device of the backend. Element
  // counts decide, shapes are not compared. Zero elements are legal.
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

  // A communicator of `ranks`, in that order; nullptr for an empty list. Every rank of this one
  // calls it. Throws CommError(kInvalidArgument): rank out of range, twice, or the own rank
  // missing.
  std::shared_ptr<TorchComm> split(const std::vector<int>& ranks, const std::string& name,
                                   const CommOptions& options = {});

  bool supportsWindow() const { return backend_->supportsWindow(); }
  // Memory for one-sided access; with a tensor collective, as tensor_register() of the window is.
  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor = {});
  // The older form, collective: new memory of `size_bytes`, and `signal_size` slots beside it
  // (nothing: 256). `cpu_buf`: host memory, whatever the device.
  std::shared_ptr<TorchCommWindow> window_allocate(size_t size_bytes, bool cpu_buf = false,
                                                   std::optional<size_t> signal_size = {});

  using AllGatherPHandle = TorchCommBackend::AllGatherPHandle;
  AllGatherPHandle all_gather_p_init(at::Tensor& output, const AllGatherPInitOptions& options = {});
  WorkPtr all_gather_p_exec(AllGatherPHandle handle, const at::Tensor& input, bool async_op,
                            const AllGatherPExecOptions& options = {});
  void all_gather_p_free(AllGatherPHandle handle);

  std::shared_ptr<c10::Allocator> getMemAllocator() const;
  void tensor_register(const at::Tensor& tensor);
  void tensor_deregister(const at::Tensor& tensor);
  int64_t get_device_transport();

  // Names this member for reconfigure(). The same text until the next one.
  InitHandle getInitHandle() const;
  // Connects exactly these members, who all call it with one uuid that they have not used before,
  // and the same handles. Needs enable_reconfigure. Blocks. A wrong call throws, and changes
  // nothing; of what the world does the work is a failed one, and there are no members then.
  WorkPtr reconfigure(const ReconfigureOptions& options);
  // The uuid of the reconfigure() that connected the members there are: the same on all of them.
  // Nothing where there are none, or where they are for good.
  std::optional<int64_t> getMembership() const { return membership_; }
  void abort();
  bool isAbortSupported() const;
  bool isAborted() const;
  void setTimeout(std::chrono::milliseconds timeout);
  void setHints(const Hints& hints);

  std::unique_ptr<RemovableHandle> registerPreHook(PreHook hook);
  std::unique_ptr<RemovableHandle> registerPostHook(PostHook hook);
  std::unique_ptr<RemovableHandle> registerUnpostedHook(UnpostedHook hook);
  std::unique_ptr<RemovableHandle> registerAbortHook(AbortHook hook);
  std::unique_ptr<RemovableHandle> registerGraphReplayHook(GraphReplayHook hook);

 private:
  struct Hooks;
  // `parent`: of one that was split.
  TorchComm(std::shared_ptr<TorchCommBackend> backend, std::string backend_name,
            const TorchComm* parent = nullptr);

  template <class Op>
  WorkPtr run(const Op& op);
  // Hands it to the backend, by way of host memory where a tensor is on a GPU.
  template <class Op>
  WorkPtr dispatch_or_stage(const Op& op);
  // Before other calls of the backend: it has all operations that were called.
  void flush_staging();
  // Instead of an end, where threads are in calls of it that they will not come out of: nothing is
  // taken away from under them.
  void abandon_backend();
  // What is no work: `make` runs between the pre-hooks and the end event, `post` gives the
  // post-hooks' arguments for its result; a null result has none.
  template <class Op, class Make, class Post>
  auto run_constructing(const Op& op, const Make& make, const Post& post);
  template <class Make>
  std::shared_ptr<TorchCommWindow> makeWindow(bool registered, const Make& make);
  void requireUsable(OpName op) const { requireUsable(opToString(op)); }
  void requireUsable(std::string_view op) const;
  bool isForked() const;
  // Throws CommError(kForked).
  void requireOwnProcess(std::string_view op) const;
  // The same, and CommError(kFinalized) after finalize().
  void requireNotFinalized(std::string_view op) const;
  bool isFinalized() const { return finalized_ && capabilities_.final_finalize; }
  [[noreturn]] void refuseUnconnected(std::string_view op) const;
  // `place`: a rank or a size, negative while there are no members.
  int require_connected(std::string_view op, int place) const;
  CommFacts facts() const;
  template <class Op>
  ProfiledOperation profiler_metadata(const Op& op, const base::OpRecord& record) const;
  // Of an operation that is about to begin: everything but what it does.
  void assign_sequence(base::OpRecord& record, size_t op_id);
  // `uuid`: of the reconfigure() that may have changed it.
  void refreshMembership(std::optional<int64_t> uuid = {});
  // Of the members; empty where they are not known.
  std::vector<int> globalRanks() const;

  std::shared_ptr<TorchCommBackend> backend_;
  std::string backend_name_;
  Capabilities capabilities_;
  std::string name_;
  int rank_ = -1, size_ = -1;  // cached; -1 while not connected
  std::optional<int64_t> membership_;
  // Has a value where the backend's ranks are not the job's: the job's of this process, -1 where
  // that is not known.
  std::optional<int> global_rank_;
  std::string unconnected_reason_;  // why the last reconfigure() failed, for error texts
  bool is_reconfigurable_ = false;  // by reconfigure(), or the one it was split from does
  uint32_t record_id_ = 0;          // this communicator in the event ring
  uint64_t sequence_ = 0;           // operations issued here; ours alone
  std::shared_ptr<OperationObserver> observer_;  // null where the backend has none
  std::unique_ptr<base::OpOrder> order_;
  uint64_t fork_generation_ = 0;
  std::atomic<bool> finalized_{false};
  std::unique_ptr<ActiveCalls> active_calls_;
  std::shared_ptr<Hooks> hooks_;
  std::shared_ptr<UnobservedFailureGuard> failure_guard_;  // null where none has to be met
  std::unique_ptr<Staging> staging_;  // null before the first operation that needs it
};

// Connects this process with the job's other ranks. Collective. Throws CommError within
// options.timeout: kBackendUnavailable, kInvalidArgument, kTimeout naming the phase, the address
// and the missing ranks.
TC_API std::shared_ptr<TorchComm> new_comm(const std::string& backend, at::Device device,
                                           const std::string& name,
                                           const CommOptions& options = {});

TC_API std::shared_ptr<c10::Allocator> get_mem_allocator(const std::string& backend);

// The next operation id becomes 0. Ids are global to the process.
TC_API void resetGlobalOpIdGenerator();

}  // namespace torch::comms
