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

// torch's own Gloo process group, completed: every operation, every dtype that is a number or truth
// value, every reduction that is defined for it. CPU tensors; those of a GPU are staged by the
// communicator (core/staging/staging.hpp), and getDevice() says where.
//
// Ranks have connections beside Gloo's (monitor/monitor_network.hpp), unless hint
// side_channel=false: over these they learn whose process has ended, where everybody is when a
// limit passes, and, of collectives that are late or with hint check_calls before they begin,
// whether all call the same. A rank that has failed, or called something else, fails every
// operation of the communicator from then on.
//
// Limits: a collective that times out closes the communicator's connections (Gloo cannot go on); a
// message that times out only ends messages with that peer. Either way isAborted() stays false, and
// the tensor of the failed operation may still be written to until the communicator is destroyed.
// finalize() lets works in flight end, on threads of their own.
//
// Made with enable_reconfigure it has no members (rank and size are -1) until reconfigure(), which
// may be called again and again, also after a failure. Each time leaves the connections of the
// members before: their works in flight end on threads of their own, by their limits; splits, whose
// connections are their own, go on. Of a failed one the work is not completed, and there are no
// members.
class TC_API TorchCommGloo : public TorchCommBackend, public BackendDiagnostics {
 public:
  TorchCommGloo();
  ~TorchCommGloo() override;

  void init(at::Device device, const std::string& name, const CommOptions& options) override;
  // The same where rank and size are known without a launcher, so that ranks may be threads.
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
  void set_unowned_failure_callback(std::function<void(TorchWork&)>) override {}  // all have a work
  uint64_t comm_identity() const override;
  std::shared_ptr<OperationObserver> operation_observer() override;

  // Also without enable_reconfigure, where nothing can be done with it.
  InitHandle getInitHandle() const override;
  WorkPtr reconfigure(const ReconfigureOptions& options) override;

 private:
  // Throws CommError where a rank has failed, or has closed the communicator before this
  // collective.
  void raise_failure(const gloo::GlooCall& call) const;
  // One operation of this communicator. Throws CommError: kFinalized after finalize(), kPeerFailed
  // when a rank has failed or a timeout has closed the connections, kSizeMismatch,
  // kStaleGeneration.
  gloo::GlooCall begin_call(OpName op, bool async_op, const OperationOptions& options);
  // With hint check_calls: returns when all ranks have called the same. Throws CommError.
  void check_mismatch(const gloo::GlooCall& call);

  // Issues with `issue()`, which returns Gloo's work or works, and completes with `finish`: now, or
  // in the background. See run.hpp.
  template <class Issue, class Finish>
  WorkPtr run_collective(const gloo::GlooCall& call, const Issue& issue, Finish finish);
  WorkPtr run_empty(const gloo::GlooCall& call);

  // Bytes to and from every rank. Counts, one a rank; both empty: equal parts.
  WorkPtr all_to_all_bytes(const gloo::GlooCall& call, const at::Tensor& output,
                           const at::Tensor& input, std::vector<int64_t> output_counts,
                           std::vector<int64_t> input_counts);
  WorkPtr all_gather_in_parts(const gloo::GlooCall& call, const Tensors& output,
                              const at::Tensor& input);
  // `slots`: one a rank, on the root only.
  WorkPtr gather_slots(const gloo::GlooCall& call, const Tensors& slots, const at::Tensor& input,
                       int root);
  WorkPtr multiply_all(const gloo::GlooCall& call, const at::Tensor& tensor, int root,
                       bool everywhere);
  WorkPtr scatter_reduced(const gloo::GlooCall& call, const at::Tensor& output,
                          const Tensors& slots, const ReduceOp& op, bool equal_slots);
  WorkPtr post_messages(const gloo::GlooCall& call, const std::vector<P2POp>& ops);

  // Takes the options over, before anything is connected. `where` is for errors.
  void begin_init(const std::string& name, const CommOptions& options, const Context& where);
  // Connects this rank with those it met. `ranks`: see ranks_.
  void connect_members(const Rendezvous& met, const gloo::SplitParent& origin,
                       const std::string& name, std::vector<int> ranks);
  // Leaves the connections of the members that there are.
  void disconnect_members();
  // Splits meet on the store: rank 0 is told, and at its end keeps it for members that come later,
  // of other groups or of splits of splits.
  void announce_splits();
  void keep_store_for_splits(const c10::intrusive_ptr<c10d::Store>& store);
  // `error`, or kStaleGeneration if that is known by now to be the reason.
  CommError explain_error(const CommError& error);

  at::Device device_{at::kCPU};
  CommOptions options_;
  std::shared_ptr<const gloo::GlooCommInfo> comm_info_;  // null before init()
  std::vector<int> ranks_;                               // of the members, in the first parent
  std::vector<InitPhase> phases_;
  std::string name_;
  std::string init_handle_;                           // where nothing can be reconfigured
  std::unique_ptr<Reconfiguration> reconfiguration_;  // null without enable_reconfigure
  c10::intrusive_ptr<c10d::Store> store_;             // of this communicator, for its splits
  bool is_store_private_ = false;                     // rank 0 serves it, for these ranks alone
  bool are_splits_announced_ = false;                 // rank 0 has been told
  std::unique_ptr<gloo::GlooGroup> group_;            // null before init() and after finalize()
  std::unique_ptr<common::MonitorOptions> monitor_options_;
  uint64_t fork_generation_;
};

}  // namespace torch::comms
