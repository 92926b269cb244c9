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

// Our own transports, for CPU tensors: shared memory inside a host, TCP between hosts. Tensors of
// GPUs that map each other's memory are for kernels (on_device.hpp); where the GPUs are on several
// hosts, some collectives are for kernels and links together (across_hosts.hpp). All others are
// staged by the communicator (core/staging/staging.hpp). getDevice() says where they are. Every
// operation; every dtype where nothing is added, else those that ctran/arithmetic has.
//
// An operation that fails, by whatever the world does, ends the communicator on all ranks: all
// later calls raise the same error, isAborted() is true, and other communicators go on.
// finalize() lets works in flight end, on a thread of its own. A split needs no store.
//
// Made with enable_reconfigure it has no members (rank and size are -1) until reconfigure(), which
// may be called again and again, also after a failure or abort(). Each time ends the links of the
// members before: their works in flight raise kAborted, the operations of their splits
// kStaleGeneration. Of a failed one the work is not completed, and there are no members.
class TC_API TorchCommCtran : public TorchCommBackend,
                              public BackendDiagnostics,
                              public std::enable_shared_from_this<TorchCommCtran> {
 public:
  TorchCommCtran();
  ~TorchCommCtran() override;

  // From here on torch's CPU tensors of 64 KiB and more lie in memory that the other ranks of the
  // host map, so that they read them where they are; not `wanted`: as before. Tensors that are
  // there stay where they are, and communicators that are there map nothing. A forked child has
  // tensors of its own; transport::shm::Arena says which. Any thread. Throws
  // CommError(kResourceExhausted, kSystem), without context.
  static void share_cpu_tensors(bool wanted);
  // As TORCHCOMM_SHARE_CPU_TENSORS says. Throws CommError(kInvalidArgument), too.
  static void share_cpu_tensors_if_configured();

  void init(at::Device device, const std::string& name, const CommOptions& options) override;
  // The same where rank and size are known without a launcher, so that ranks may be threads.
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
  TorchCommBackend* onDevice(const at::Device& device, const OnDevice& asked) override;

  // Of the operations on a GPU's tensors.
  std::map<std::string, std::string> describe_entries() const override;
  std::map<std::string, uint64_t> memory_usage() const override;
  void set_unowned_failure_callback(std::function<void(TorchWork&)> met) override;
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

  // Of tensors on the device, where kernels carry out its operations.
  AllGatherPHandle all_gather_p_init(at::Tensor& output,
                                     const AllGatherPInitOptions& options) override;
  WorkPtr all_gather_p_exec(AllGatherPHandle handle, const at::Tensor& input, bool async_op,
                            const AllGatherPExecOptions& options) override;
  void all_gather_p_free(AllGatherPHandle handle) override;

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;

  // Once a membership, whoever comes first.
  void announceAbort() noexcept override {
    if (!have_abort_hooks_run_.exchange(true)) runAbortHooks();
  }
  // Windows keep this object alive. Memory of peers on this host is mapped where it is shared: the
  // window's own from window_allocate(), or a tensor's after share_memory_().
  std::shared_ptr<TorchCommWindow> new_window(const std::optional<at::Tensor>& tensor) override;
  std::shared_ptr<TorchCommWindow> window_allocate(size_t size_bytes, bool cpu_buf,
                                                   size_t signal_size) override;
  // Tensors on the CPU, or on the communicator's device. Registrations end with the membership.
  void tensor_register(const at::Tensor& tensor) override;
  void tensor_deregister(const at::Tensor& tensor) override;
  // Where kernels carry out its operations. Collective at first.
  int64_t get_device_transport() override;

  // Of later operations.
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setHints(const Hints& hints) override;
  // Runs the abort hooks, and ends this communicator here; the others see a peer that has left.
  void abort() override;
  bool isAborted() const override;

  InitHandle getInitHandle() const override;
  WorkPtr reconfigure(const ReconfigureOptions& options) override;

 private:
  friend class ctran::CtranWindow;

  // For tensors on the device, whose operations kernels carry out.
  // Who runs everything on the device by kernels; null where they run some operations, or none.
  KernelBackend* kernel_backend();
  // Who gathers on the device; null where nobody does.
  TorchCommBackend* all_gather_backend();
  std::shared_ptr<ctran::TeamWindow> make_gpu_window(size_t slots);
  // One operation of this communicator. Throws CommError: kFinalized, kStaleGeneration.
  ctran::CallInfo begin_call(std::string_view op, const OperationOptions& options);
  ctran::CallInfo begin_call(OpName op, const OperationOptions& options);
  // Runs `body`, which throws CommError without context for operands that cannot be.
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
  // What a synchronous operation threw, to be thrown on; runs the abort hooks for a failure that
  // ends the communicator.
  CommError handle_failure(const CommError& error);
  void select_algorithm(ctran::EngineCall& call, const Hints& hints) const;
  // Whether all ranks are about to make this call: returns when they are, or at once for an
  // asynchronous one, which then waits for that. What it took is taken off the call's limit.
  void consistency_barrier(ctran::EngineCall& call, bool async_op);

  // Takes the options over, before anything is connected. `context` is for errors.
  void begin_init(const std::string& name, const CommOptions& options, const Context& context);
  // What is derived from hints, if all are right. Throws CommError, without context.
  void parse_options(const CommOptions& options);
  void connect_members(const Rendezvous& met);
  // Ends the links of the members that there are.
  void disconnect_members();
  Reconfiguration& require_reconfiguration(const char* op) const;
  // Takes the place in `session`, which is connected. `ranks`: see ranks_. Collective.
  void attach_session(std::shared_ptr<ctran::Session> session, std::vector<int> ranks);
  // All members meet for their kernels, where the communicator's device may have some.
  void connect_gpu(const std::shared_ptr<ctran::Session>& session);
  void disconnect_gpu(const std::shared_ptr<ctran::Session>& session);

  at::Device device_{at::kCPU};
  CommOptions options_;
  std::string name_;
  int rank_ = -1, size_ = -1;
  uint64_t identity_ = 0;   // of these members
  std::vector<int> ranks_;  // of the members, in the first parent
  std::vector<InitPhase> phases_;
  std::unique_ptr<ctran::AlgorithmRequests> algorithm_requests_;  // of the options' hints
  bool is_call_check_enabled_ = false;                            // the same
  mutable std::mutex mutex_;                 // guards session_ where abort() and isAborted() look
  std::shared_ptr<ctran::Session> session_;  // null before init() and after finalize()
  std::atomic<bool> was_aborted_{false};     // of a session that is gone
  std::atomic<bool> have_abort_hooks_run_{false};
  std::unique_ptr<Reconfiguration> reconfiguration_;  // null without enable_reconfigure
  std::function<void(TorchWork&)> on_unowned_failure_;
  uint64_t fork_generation_;
};

}  // namespace torch::comms
