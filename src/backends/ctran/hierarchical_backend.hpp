#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/nccl/api/nccl_api_backend.hpp"
#include "ctran/engine/group/engine_group.hpp"
#include "transport/nvl/symmetric_memory.hpp"

namespace torch::comms {

namespace ctran {
class HierarchicalKernels;
struct HostTopology;
}  // namespace ctran

// Collectives of ctran on GPU tensors of several hosts: kernels inside each host, and the CPU
// engine between hosts (ctran/gpe), in stream order.
// Lifetime: TorchCommCtran creates this object for its own members, passes it the operations for
// which can_run() is true, and finalizes it.
class TC_API CtranHierarchicalBackend final : public NcclApiBackend {
 public:
  // Either all members have a backend, or none has.
  struct HierarchicalBackendResult {
    std::shared_ptr<CtranHierarchicalBackend> backend;
    std::string unavailable_reason;  // equal on all ranks
  };
  // Functions by which the backend reaches its members outside of the device.
  struct HierarchicalBackendCallbacks {
    ctran::EngineGroup& group;  // of the communicator; not retained
    // All-gathers one string of each member of `group`.
    std::function<std::vector<std::string>(ctran::EngineGroup& group, const std::string& text)>
        gather;
    // Returns: why operations in flight can never complete; see nccl::CollectiveKernels. Threads:
    // any.
    std::function<std::optional<CommError>(const Context&)> find_failed_peer;
    // Returns: the error to raise for an operation's error, for example kStaleGeneration if that is
    // the cause.
    std::function<CommError(const CommError&)> explain;
  };
  // Collective. `device` must satisfy CtranGpuBackend::is_supported_device(). Throws: CommError.
  static HierarchicalBackendResult make(int rank, const std::vector<int>& ranks, at::Device device,
                                        const std::string& name, const CommOptions& options,
                                        const HierarchicalBackendCallbacks& links);

  // Returns: whether this backend carries out the operation; equal on all ranks.
  bool can_run(const OnDevice& query) const;

  WorkPtr broadcast(at::Tensor& tensor, int root, bool async_op,
                    const BroadcastOptions& options) override;
  WorkPtr all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                     const AllReduceOptions& options) override;
  WorkPtr all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                            const AllGatherSingleOptions& options) override;
  WorkPtr reduce_scatter_single(at::Tensor& output, const at::Tensor& input, const ReduceOp& op,
                                bool async_op, const ReduceScatterSingleOptions& options) override;
  WorkPtr barrier(bool async_op, const BarrierOptions& options) override;

  void finalize() override;
  // Throws: CommError(kUnsupported). TorchCommCtran splits the communicator itself.
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;
  // Returns: the algorithms of the operations for which can_run() is true.
  std::vector<AlgorithmRange> algorithms() const override;
  std::map<std::string, std::string> describe_entries() const override;
  std::map<std::string, uint64_t> memory_usage() const override;

 private:
  explicit CtranHierarchicalBackend(const HierarchicalBackendCallbacks& links);
  std::shared_ptr<NcclApiBackend> make_child() const override { return nullptr; }
  CommError explain_error(const CommError& error) override { return explain_(error); }
  void on_connected() override;
  // Launches a collective with `body(collectives, step)`.
  template <class Body>
  WorkPtr launch_collective(OpName op, bool async_op, const OperationOptions& options,
                            const OperandTensors& operands, const Body& body);

  std::function<std::optional<CommError>(const Context&)> find_failed_peer_;
  std::function<CommError(const CommError&)> explain_;
  std::shared_ptr<ctran::HierarchicalKernels> kernels_;
};

}  // namespace torch::comms
