#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/nccl/vendor_backend.hpp"
#include "ctran/kernels/library.hpp"

namespace torch::comms {

namespace ctran {
class TeamKernels;
struct OfferedFactor;
}  // namespace ctran

// A vendor's backend where kernels of a team (ctran/device) may run collectives in the library's
// place. An operation that the kernels run has the order, the limit, the work and the captures of
// every other one of the communicator; when a kernel is stopped, the communicator ends.
//
// Whether kernels run an operation is the same on all ranks.
class TC_API TorchCommKernels : public TorchCommVendor {
 public:
  void finalize() override;

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
  WorkPtr barrier(bool async_op, const BarrierOptions& options) override;
  WorkPtr gather_single(at::Tensor& output, const at::Tensor& input, int root, bool async_op,
                        const GatherSingleOptions& options) override;

  std::vector<AlgorithmRange> algorithms() const override;

 protected:
  using TorchCommVendor::TorchCommVendor;

  // A collective begins: ranks that have not met for their kernels may do so now.
  virtual void before_collective() {}
  // Whether kernels run `call`, which is `op` or a part of it, and then by which algorithm, which
  // it sets. `bytes`: of the largest buffer of a rank. Throws CommError without context.
  virtual bool is_taken(OpName op, ctran::kernels::Call& call, size_t bytes,
                        const OperationOptions& options) const = 0;
  // Who runs what the kernels do not, and why it is so, for algorithms().
  struct Else {
    std::string who, why;
  };
  virtual Else otherwise(ctran::kernels::Collective collective) const = 0;

  // The kernels of this connection, or null; those before go with their lane.
  void set_kernels(std::shared_ptr<ctran::TeamKernels> kernels) { kernels_ = std::move(kernels); }
  const ctran::TeamKernels* kernels() const noexcept { return kernels_.get(); }
  void connected() override;

 private:
  // Collectives that are one operation, the bytes of the largest buffer of each on a rank, and the
  // tensors that it keeps.
  struct Offer {
    OpName op;
    std::span<ctran::kernels::Call> calls;
    size_t bytes;
    std::initializer_list<const at::Tensor*> tensors;
    std::initializer_list<const Tensors*> lists = {};
  };
  // Launches it by kernels; null where the library is to run it.
  WorkPtr offer(const Offer& offer, bool async_op, const OperationOptions& options);
  // Throws kInvalidArgument.
  std::optional<ctran::OfferedFactor> factor_for(OpName op, const ReduceOp& reduction,
                                                 const at::Tensor& tensor) const;
  WorkPtr offer_slots(OpName op, const at::Tensor& output, const Tensors& input,
                      const ReduceOp& reduction, bool async_op, const OperationOptions& options);

  std::shared_ptr<ctran::TeamKernels> kernels_;
};

}  // namespace torch::comms
