#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/backend.hpp>
#include <torchcomms/base/error.hpp>

#include "core/backend/backend_diagnostics.hpp"

namespace torch::comms {

class Reconfiguration;
class KernelBackend;
struct Rendezvous;

namespace bootstrap {
struct LaunchInfo;
}

namespace ctran {
class CtranWindow;
class OperandBuffers;
class TeamWindow;
struct EngineCall;
struct CallInfo;
struct Session;
struct AlgorithmRequest;
struct AlgorithmRequests;
}  // namespace ctran

// The backend on this project's own transports for CPU tensors: shared memory inside a host, TCP
// between hosts. If GPUs of the members map each other's memory, kernels carry out the operations
// on GPU tensors (gpu_backend.hpp). If the GPUs are on several hosts, kernels and links together
// carry out some collectives (hierarchical_backend.hpp). The communicator stages all other
// operations on GPU tensors (core/staging/staging.hpp); getDevice() returns their device. Every
// operation is supported. Data movement supports every dtype; reductions support the dtypes of
// ctran/arithmetic.
//
// An operation that fails for a reason outside of its arguments ends the communicator on all ranks.
// All later calls raise the same error, and isAborted() is true; other communicators continue.
// finalize() does not wait for works in flight: a background thread completes them. split() needs
// no store.
//
// A communicator that is created with enable_reconfigure has no members (rank and size are -1)
// until reconfigure(). reconfigure() may be called repeatedly, also after a failure or abort().
// Each call closes the links of the previous members: works in flight raise kAborted, and
// operations of splits raise kStaleGeneration. If reconfigure() fails, its work fails, and the
// communicator has no members.
class TC_API TorchCommCtran : public TorchCommBackend,
                              public BackendDiagnostics,
                              public std::enable_shared_from_this<TorchCommCtran> {
 public:
  TorchCommCtran();
  ~TorchCommCtran() override;

  // Places CPU tensors that torch allocates from now on, if they have 64 KiB or more, in memory
  // that peer ranks on the host map, so that peers can read them in place. `wanted` = false
  // disables this for new tensors. Existing tensors do not move, and existing communicators map
  // nothing. A forked child has tensors of its own; see transport::shm::SharedArena.
  // Throws: CommError(kResourceExhausted, kSystem), without context.
  // Threads: any.
  static void share_cpu_tensors(bool wanted);
  // Calls share_cpu_tensors() if TORCHCOMM_SHARE_CPU_TENSORS is true. Throws:
  // CommError(kInvalidArgument), too.
  static void share_cpu_tensors_if_configured();

  void init(at::Device device, const std::string& name, const CommOptions& options) override;
  // Initializes with a known rank and size instead of those of a launcher, so that ranks may be
  // threads.
  void init(const bootstrap::LaunchInfo& launch, const std::string& name,
            const CommOptions& options);
  void finalize() override;

  int getRank() const override { return rank_; }
  int getSize() const override { return size_; }
  std::string_view getBackendName() const override { return "ctran"; }
  std::string_view getBackendVersion() const override;
  std::string_view getCommName() const override { return name_; }
  const CommOptions& getOptions() const override { return options_; }
  const at::Device& getDevice() const override { return device_; }
  Capabilities capabilities() const override;
  std::vector<int> getRanks() const override { return ranks_; }
  bool isInitialized() const override { return size_ > 0; }
  std::vector<InitPhase> initPhases() const override { return phases_; }
  std::vector<std::string> links() const override;
  std::vector<AlgorithmRange> algorithms() const override;
  TorchCommBackend* onDevice(const at::Device& device, const OnDevice& query) override;

  // Describe the operations on GPU tensors.
  std::map<std::string, std::string> describe_entries() const override;
  std::map<std::string, uint64_t> memory_usage() const override;
  void set_unowned_failure_callback(std::function<void(TorchWork&)> callback) override;
  uint64_t comm_identity() const override { return identity_; }

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

  // Supported for tensors on the device if kernels carry out its operations.
  AllGatherPHandle all_gather_p_init(at::Tensor& output,
                                     const AllGatherPInitOptions& options) override;
  WorkPtr all_gather_p_exec(AllGatherPHandle handle, const at::Tensor& input, bool async_op,
                            const AllGatherPExecOptions& options) override;
  void all_gather_p_free(AllGatherPHandle handle) override;

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;

  // Runs the abort hooks, at most once per set of members.
  void announceAbort() noexcept override {
    if (!have_abort_hooks_run_.exchange(true)) runAbortHooks();
  }
  // Windows keep this object alive. A window maps the memory of peers on this host if that memory
  // is shared: its own memory from window_allocate(), or a tensor's memory after share_memory_().
  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor) override;
  std::shared_ptr<TorchCommWindow> window_allocate(size_t size_bytes, bool cpu_buf,
                                                   size_t signal_size) override;
  // Tensors must be on the CPU or on the communicator's device. Registrations end when the members
  // change.
  void tensor_register(const at::Tensor& tensor) override;
  void tensor_deregister(const at::Tensor& tensor) override;
  // Supported if kernels carry out the device's operations. The first call is collective.
  int64_t get_device_transport() override;

  // Both apply to later operations.
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setHints(const Hints& hints) override;
  // Runs the abort hooks, and ends this communicator on this rank. Peers observe a peer that has
  // left.
  void abort() override;
  bool isAborted() const override;

  InitHandle getInitHandle() const override;
  WorkPtr reconfigure(const ReconfigureOptions& options) override;

 private:
  friend class ctran::CtranWindow;

  // Returns: the backend that carries out all operations on the device with kernels; null if
  // kernels run none or only some.
  KernelBackend* kernel_backend();
  // Returns: the backend that carries out all-gathers on the device; null if there is none.
  TorchCommBackend* all_gather_backend();
  std::shared_ptr<ctran::TeamWindow> make_gpu_window(size_t slots);
  // Begins an operation of this communicator. Throws: CommError: kFinalized, kStaleGeneration.
  ctran::CallInfo begin_call(std::string_view op, const OperationOptions& options);
  ctran::CallInfo begin_call(OpName op, const OperationOptions& options);
  // Runs `body`, and adds the call's context to a CommError that `body` throws for invalid
  // operands.
  template <class Body>
  WorkPtr with_call_context(const ctran::CallInfo& issue, const Body& body);

  // Runs or starts a collective whose operation, dtype, root and blocks are set.
  WorkPtr submit(const ctran::CallInfo& issue, const OperationOptions& options, bool async_op,
                 ctran::EngineCall& call, const ctran::OperandBuffers& operands);
  WorkPtr run_gather(const ctran::CallInfo& issue, const OperationOptions& options, bool async_op,
                     int root, const at::Tensor& input, ctran::OperandBuffers& operands);
  WorkPtr run_reduction(const ctran::CallInfo& issue, const OperationOptions& options,
                        bool async_op, ctran::EngineCall& call, const at::Tensor& like,
                        int64_t count, const ReduceOp& op, ctran::OperandBuffers& operands);
  WorkPtr post_messages(const ctran::CallInfo& issue, bool async_op, const std::vector<P2POp>& ops);
  // Returns: the error to raise for the error of a synchronous operation. Runs the abort hooks if
  // the communicator has ended.
  CommError handle_failure(const CommError& error);
  void select_algorithm(ctran::EngineCall& call, const Hints& hints) const;
  // Checks that all ranks are about to make this call. Blocks until they are, and subtracts the
  // elapsed time from the call's timeout. For an asynchronous call it returns at once, and the call
  // waits for the check instead.
  void consistency_barrier(ctran::EngineCall& call, bool async_op);

  // Stores the options before anything is connected. `context` is the context of errors.
  void begin_init(const std::string& name, const CommOptions& options, const Context& context);
  // Sets the members that are derived from hints, if all hints are valid. Throws: CommError,
  // without context.
  void parse_options(const CommOptions& options);
  void connect_members(const Rendezvous& rendezvous);
  // Closes the links of the current members.
  void disconnect_members();
  Reconfiguration& require_reconfiguration(const char* op) const;
  // Sets rank and size from `session`, which is connected. `ranks`: see ranks_. Collective.
  void attach_session(std::shared_ptr<ctran::Session> session, std::vector<int> ranks);
  // Creates the GPU backend of the session, if the communicator's device can have one. Collective.
  void connect_gpu(const std::shared_ptr<ctran::Session>& session);
  void disconnect_gpu(const std::shared_ptr<ctran::Session>& session);

  at::Device device_{at::kCPU};
  CommOptions options_;
  std::string name_;
  int rank_ = -1, size_ = -1;
  uint64_t identity_ = 0;   // identifies this set of members
  std::vector<int> ranks_;  // of the members, in the first parent
  std::vector<InitPhase> phases_;
  std::unique_ptr<ctran::AlgorithmRequests> algorithm_requests_;  // from the options' hints
  bool is_call_check_enabled_ = false;                            // from the options' hints
  mutable std::mutex mutex_;                 // guards session_ against abort() and isAborted()
  std::shared_ptr<ctran::Session> session_;  // null before init() and after finalize()
  std::atomic<bool> was_aborted_{false};     // of an earlier session
  std::atomic<bool> have_abort_hooks_run_{false};
  std::unique_ptr<Reconfiguration> reconfiguration_;  // null without enable_reconfigure
  std::function<void(TorchWork&)> on_unowned_failure_;
  uint64_t fork_generation_;
};

}  // namespace torch::comms
