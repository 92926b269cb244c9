#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/device_kernels/kernel_backend.hpp"

namespace torch::comms {

// The backend of ctran for a communicator with one member whose tensors are on a device. Operations
// are copies on the stream. The first window creates kernels and a workspace.
// Lifetime: TorchCommCtran creates this object for itself and finalizes it.
class TC_API TorchCommCtranAlone final : public KernelBackend {
 public:
  // Returns: the error to raise for an operation's error, for example kStaleGeneration if that is
  // the cause.
  using Explain = std::function<CommError(const CommError&)>;
  // `ranks` contains the only member, as its rank in the first parent.
  // Throws: CommError.
  static std::shared_ptr<TorchCommCtranAlone> make(const std::vector<int>& ranks, at::Device device,
                                                   const std::string& name,
                                                   const CommOptions& options, Explain explain);

  WorkPtr broadcast(at::Tensor& tensor, int root, bool async_op,
                    const BroadcastOptions& options) override;
  WorkPtr all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                     const AllReduceOptions& options) override;
  WorkPtr reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                 const ReduceOptions& options) override;
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
  WorkPtr gather_single(at::Tensor& output, const at::Tensor& input, int root, bool async_op,
                        const GatherSingleOptions& options) override;
  WorkPtr barrier(bool async_op, const BarrierOptions& options) override;

  // Throws: CommError(kUnsupported). TorchCommCtran splits the communicator itself.
  std::shared_ptr<TorchCommBackend> split(const std::vector<int>& ranks, const std::string& name,
                                          const CommOptions& options) override;
  std::vector<AlgorithmRange> algorithms() const override;

 private:
  explicit TorchCommCtranAlone(Explain explain);
  std::shared_ptr<NcclApiBackend> make_child() const override { return nullptr; }
  CommError explain_error(const CommError& error) override { return explain_(error); }
  KernelDecision choose(ctran::kernels::KernelCall&, const SelectionQuery&) const override {
    return {.use_kernels = false};
  }
  Fallback fallback_for(ctran::kernels::Collective) const override {
    return {"copy", "the only rank"};
  }
  std::vector<std::string> all_gather_strings(const std::string& text,
                                              const nccl::NcclCall&) override {
    return {text};
  }
  std::string kernels_unavailable_reason() const override {
    return "the kernels for windows are not set up yet";
  }

  const Explain explain_;
};

}  // namespace torch::comms
