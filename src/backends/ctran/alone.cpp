#include "backends/ctran/alone.hpp"

#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/nccl/streams/launch.hpp"
#include "ctran/library/team_library.hpp"

namespace torch::comms {

TorchCommCtranAlone::TorchCommCtranAlone(Explain explain)
    : KernelBackend(ctran::kTeamLibrary, "ctran"), explain_(std::move(explain)) {}

std::shared_ptr<TorchCommCtranAlone> TorchCommCtranAlone::make(const std::vector<int>& ranks,
                                                               at::Device device,
                                                               const std::string& name,
                                                               const CommOptions& options,
                                                               Explain explain) {
  const std::shared_ptr<TorchCommCtranAlone> backend(new TorchCommCtranAlone(std::move(explain)));
  backend->init_from_members({0, ranks}, device, name, options, [](const nccl::NcclDevice& opened) {
    return ctran::open_team(nullptr, opened.shared_runtime());
  });
  return backend;
}

WorkPtr TorchCommCtranAlone::broadcast(at::Tensor& tensor, int, bool async_op,
                                       const BroadcastOptions& options) {
  return copy_single_rank(begin_call(OpName::broadcast, async_op, options), options, tensor,
                          tensor);
}

WorkPtr TorchCommCtranAlone::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                                        const AllReduceOptions& options) {
  return reduce_single_rank(begin_call(OpName::all_reduce, async_op, options), options, op, tensor,
                            tensor);
}

WorkPtr TorchCommCtranAlone::reduce(at::Tensor& tensor, int, const ReduceOp& op, bool async_op,
                                    const ReduceOptions& options) {
  return reduce_single_rank(begin_call(OpName::reduce, async_op, options), options, op, tensor,
                            tensor);
}

WorkPtr TorchCommCtranAlone::all_gather_single(at::Tensor& output, const at::Tensor& input,
                                               bool async_op,
                                               const AllGatherSingleOptions& options) {
  return copy_single_rank(begin_call(OpName::all_gather_single, async_op, options), options, output,
                          input);
}

WorkPtr TorchCommCtranAlone::reduce_scatter(at::Tensor& output, const Tensors& input,
                                            const ReduceOp& op, bool async_op,
                                            const ReduceScatterOptions& options) {
  return reduce_single_rank(begin_call(OpName::reduce_scatter, async_op, options), options, op,
                            output, input.front());
}

WorkPtr TorchCommCtranAlone::reduce_scatter_v(at::Tensor& output, const Tensors& input,
                                              const ReduceOp& op, bool async_op,
                                              const ReduceScatterOptions& options) {
  return reduce_single_rank(begin_call(OpName::reduce_scatter_v, async_op, options), options, op,
                            output, input.front());
}

WorkPtr TorchCommCtranAlone::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                                   const ReduceOp& op, bool async_op,
                                                   const ReduceScatterSingleOptions& options) {
  return reduce_single_rank(begin_call(OpName::reduce_scatter_single, async_op, options), options,
                            op, output, input);
}

WorkPtr TorchCommCtranAlone::all_to_all_single(at::Tensor& output, const at::Tensor& input,
                                               bool async_op,
                                               const AllToAllSingleOptions& options) {
  // Bypasses KernelBackend, whose kernels are for several ranks.
  // NOLINTNEXTLINE(bugprone-parent-virtual-call)
  return NcclApiBackend::all_to_all_single(output, input, async_op, options);
}

WorkPtr TorchCommCtranAlone::gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                           bool async_op, const GatherSingleOptions& options) {
  // Bypasses KernelBackend.  NOLINTNEXTLINE(bugprone-parent-virtual-call)
  return NcclApiBackend::gather_single(output, input, root, async_op, options);
}

WorkPtr TorchCommCtranAlone::barrier(bool async_op, const BarrierOptions& options) {
  return run(begin_call(OpName::barrier, async_op, options), options, {{}, {}},
             [](const nccl::NcclLaunch&) { return nccl::abi::Result(nccl::abi::kSuccess); });
}

std::shared_ptr<TorchCommBackend> TorchCommCtranAlone::split(const std::vector<int>&,
                                                             const std::string&,
                                                             const CommOptions&) {
  throw CommError(Errc::kUnsupported,
                  "this internal backend cannot be split; call split() on the communicator",
                  {.op = "split", .comm = std::string(getCommName()), .rank = 0});
}

std::vector<TorchCommBackend::AlgorithmRange> TorchCommCtranAlone::algorithms() const {
  std::vector<AlgorithmRange> ranges;
  for (const auto op : {OpName::broadcast, OpName::all_reduce, OpName::reduce,
                        OpName::all_gather_single, OpName::reduce_scatter_single,
                        OpName::all_to_all_single, OpName::gather_single, OpName::barrier})
    ranges.push_back({op, 0, "copy", 0, "the only rank"});
  return ranges;
}

}  // namespace torch::comms
