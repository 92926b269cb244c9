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

// Collectives of backend ctran on tensors of GPUs that are on several hosts: by kernels inside
// hosts, by the CPU engine between them (ctran/gpe), in the order of the stream. TorchCommCtran
// makes it for its own members, gives it what can_run() says yes to, and ends it.
class TC_API CtranHierarchicalBackend final : public NcclApiBackend {
 public:
  // Either all members have one, or none.
  struct HierarchicalBackendResult {
    std::shared_ptr<CtranHierarchicalBackend> backend;
    std::string unavailable_reason;  // the same on all ranks
  };
  // What the members have beside the device.
  struct HierarchicalBackendCallbacks {
    ctran::EngineGroup& group;  // of the communicator; not kept
    // All members' words, and those of a group's.
    std::function<std::vector<std::string>(ctran::EngineGroup& group, const std::string& words)>
        gather;
    // Why operations under way wait in vain, see nccl::CollectiveKernels. Any thread.
    std::function<std::optional<CommError>(const Context&)> find_failed_peer;
    // What an error of an operation comes from, if that is known by now.
    std::function<CommError(const CommError&)> explain;
  };
  // Collective. `device` is of the kind that CtranGpuBackend::is_supported_device() says yes to.
  // Throws CommError.
  static HierarchicalBackendResult make(int rank, const std::vector<int>& ranks, at::Device device,
                                        const std::string& name, const CommOptions& options,
                                        const HierarchicalBackendCallbacks& links);

  // Whether this object runs it; the same on all ranks.
  bool can_run(const OnDevice& asked) const;

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
  // The members are split by their communicator.
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;
  // Of the operations that it takes.
  std::vector<AlgorithmRange> algorithms() const override;
  std::map<std::string, std::string> describe_entries() const override;
  std::map<std::string, uint64_t> memory_usage() const override;

 private:
  explicit CtranHierarchicalBackend(const HierarchicalBackendCallbacks& links);
  std::shared_ptr<NcclApiBackend> make_child() const override { return nullptr; }
  CommError explain_error(const CommError& error) override { return explain_(error); }
  void on_connected() override;
  // `body(kernels, how)` launches it.
  template <class Body>
  WorkPtr launch_collective(OpName op, bool async_op, const OperationOptions& options,
                            const OperandTensors& operands, const Body& body);

  std::function<std::optional<CommError>(const Context&)> find_failed_peer_;
  std::function<CommError(const CommError&)> explain_;
  std::shared_ptr<ctran::HierarchicalKernels> kernels_;
};

}  // namespace torch::comms
