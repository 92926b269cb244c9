#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torchcomms/backend.hpp>
#include <torchcomms/base/error.hpp>

#include "core/backend/backend_diagnostics.hpp"

namespace c10d {
class Work;
}

namespace torch::comms {

class Reconfiguration;
struct Rendezvous;

namespace bootstrap {
struct LaunchInfo;
}

namespace common {
struct MonitorOptions;
}

namespace gloo {
struct GlooCall;
struct GlooGroup;
struct GlooCommInfo;
struct SplitParent;
}  // namespace gloo

// The backend on torch's Gloo process group, extended to every operation, every numeric and bool
// dtype, and every reduction that is defined for the dtype. Tensors are on the CPU. The
// communicator stages tensors of a GPU (core/staging/staging.hpp); getDevice() returns that device.
//
// The ranks keep monitor connections beside Gloo's (monitor/monitor_network.hpp), unless hint
// side_channel=false. The monitor detects exited processes and reports the progress of the ranks
// after a timeout. It compares the calls of collectives that are late, or of every collective
// before it begins with hint check_calls. After a rank has failed or has called a different
// collective, every operation of the communicator fails.
//
// A collective that times out closes the communicator's connections, because Gloo cannot continue.
// A message that times out only ends messages with that peer. In both cases isAborted() stays
// false, and the tensor of the failed operation may still be written to until the communicator is
// destroyed. finalize() does not wait for works in flight: background threads complete them.
//
// A communicator that is created with enable_reconfigure has no members (rank and size are -1)
// until reconfigure(). reconfigure() may be called repeatedly, also after a failure. Each call
// leaves the connections of the previous members: works in flight complete in the background, at
// their deadlines at the latest. Splits have connections of their own and are not affected. If
// reconfigure() fails, its work fails, and the communicator has no members.
class TC_API TorchCommGloo : public TorchCommBackend, public BackendDiagnostics {
 public:
  TorchCommGloo();
  ~TorchCommGloo() override;

  void init(at::Device device, const std::string& name, const CommOptions& options) override;
  // Initializes with a known rank and size instead of those of a launcher, so that ranks may be
  // threads.
  void init(const bootstrap::LaunchInfo& launch, const std::string& name,
            const CommOptions& options);
  void finalize() override;

  int getRank() const override;
  int getSize() const override;
  std::string_view getBackendName() const override { return "gloo"; }
  std::string_view getCommName() const override;
  const CommOptions& getOptions() const override { return options_; }
  const at::Device& getDevice() const override { return device_; }
  Capabilities capabilities() const override;
  std::vector<int> getRanks() const override { return ranks_; }
  bool isInitialized() const override { return comm_info_ != nullptr; }
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

  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;
  void setTimeout(std::chrono::milliseconds timeout) override;

  std::map<std::string, std::string> describe_entries() const override;
  std::map<std::string, uint64_t> memory_usage() const override { return {}; }
  void set_unowned_failure_callback(std::function<void(TorchWork&)>) override {
  }  // every operation has a work
  uint64_t comm_identity() const override;
  std::shared_ptr<OperationObserver> operation_observer() override;

  // Also returns a handle without enable_reconfigure, but that handle cannot be used.
  InitHandle getInitHandle() const override;
  WorkPtr reconfigure(const ReconfigureOptions& options) override;

 private:
  // Throws: CommError if a rank has failed, or has closed the communicator before this collective.
  void raise_failure(const gloo::GlooCall& call) const;
  // Begins an operation of this communicator.
  // Throws: CommError: kFinalized after finalize(), kPeerFailed if a rank has failed or a timeout
  // has closed the connections, kMismatch, kStaleGeneration.
  gloo::GlooCall begin_call(OpName op, bool async_op, const OperationOptions& options);
  // With hint check_calls, compares the calls of all ranks.
  // Blocks: until all ranks have issued the same call.
  // Throws: CommError.
  void check_mismatch(const gloo::GlooCall& call);

  // Issues a collective with `issue()`, which returns one or several Gloo works. Completes it with
  // `finish`: on this thread for a synchronous call, in the background otherwise. See
  // run_collective.hpp.
  template <class Issue, class Finish>
  WorkPtr run_collective(const gloo::GlooCall& call, const Issue& issue, Finish finish);
  WorkPtr run_empty(const gloo::GlooCall& call);

  // Exchanges bytes with every rank. The counts are one per rank, in bytes; two empty lists mean
  // equal parts.
  WorkPtr all_to_all_bytes(const gloo::GlooCall& call, const at::Tensor& output,
                           const at::Tensor& input, std::vector<int64_t> output_counts,
                           std::vector<int64_t> input_counts);
  WorkPtr all_gather_in_parts(const gloo::GlooCall& call, const Tensors& output,
                              const at::Tensor& input);
  // `slots`: one per rank, on the root only.
  WorkPtr gather_slots(const gloo::GlooCall& call, const Tensors& slots, const at::Tensor& input,
                       int root);
  WorkPtr multiply_all(const gloo::GlooCall& call, const at::Tensor& tensor, int root,
                       bool everywhere);
  WorkPtr scatter_reduced(const gloo::GlooCall& call, const at::Tensor& output,
                          const Tensors& slots, const ReduceOp& op, bool equal_slots);
  WorkPtr post_messages(const gloo::GlooCall& call, const std::vector<P2POp>& ops);

  // Stores the options before anything is connected. `where` is the context of errors.
  void begin_init(const std::string& name, const CommOptions& options, const Context& where);
  // Connects this rank with the members of `rendezvous`. `ranks`: see ranks_.
  void connect_members(const Rendezvous& rendezvous, const gloo::SplitParent& origin,
                       const std::string& name, std::vector<int> ranks);
  // Closes the connections of the current members.
  void disconnect_members();
  // The members of a split find each other through the store. announce_splits() tells rank 0 about
  // a split. At its finalize(), rank 0 then keeps the store for members that arrive later.
  void announce_splits();
  void keep_store_for_splits(const c10::intrusive_ptr<c10d::Store>& store);
  // Returns: kStaleGeneration if this rank has been excluded and the error may result from that,
  // otherwise `error`.
  CommError explain_error(const CommError& error);

  at::Device device_{at::kCPU};
  CommOptions options_;
  std::shared_ptr<const gloo::GlooCommInfo> comm_info_;  // null before init()
  std::vector<int> ranks_;                               // of the members, in the first parent
  std::vector<InitPhase> phases_;
  std::string name_;
  std::string init_handle_;                           // without enable_reconfigure
  std::unique_ptr<Reconfiguration> reconfiguration_;  // null without enable_reconfigure
  c10::intrusive_ptr<c10d::Store> store_;   // the store of this communicator, for its splits
  bool is_store_private_ = false;           // rank 0 serves the store, for these ranks only
  bool are_splits_announced_ = false;       // rank 0 has been informed
  std::unique_ptr<gloo::GlooGroup> group_;  // null before init() and after finalize()
  std::unique_ptr<common::MonitorOptions> monitor_options_;
  uint64_t fork_generation_;
};

}  // namespace torch::comms
