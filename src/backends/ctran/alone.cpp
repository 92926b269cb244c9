#include "backends/ctran/alone.hpp"

#include <utility>

#include <ATen/ScalarOps.h>
#include <ATen/ops/mul.h>
#include <torchcomms/base/error.hpp>

#include "backends/kernels/offers.hpp"
#include "backends/nccl/run.hpp"
#include "core/explain.hpp"
#include "core/operands.hpp"
#include "ctran/library/team_library.hpp"

namespace torch::comms {

TorchCommCtranAlone::TorchCommCtranAlone(Explain explain)
    : TorchCommVendor(ctran::kTeamLibrary, "ctran"), explain_(std::move(explain)) {}

std::shared_ptr<TorchCommCtranAlone> TorchCommCtranAlone::make(const std::vector<int>& ranks,
                                                               at::Device device,
                                                               const std::string& name,
                                                               const CommOptions& options,
                                                               Explain explain) {
  const std::shared_ptr<TorchCommCtranAlone> made(new TorchCommCtranAlone(std::move(explain)));
  made->init_as({0, ranks}, device, name, options, [](const nccl::Device& opened) {
    return ctran::open_team(nullptr, opened.shared_runtime());
  });
  return made;
}

WorkPtr TorchCommCtranAlone::copy(OpName op, const at::Tensor& output, const at::Tensor& input,
                                  bool async_op, const OperationOptions& options) {
  return run(
      call(op, async_op, options), options, {{&output, &input}, {}}, [&](const nccl::Launch& go) {
        const nccl::Bytes from(input), into(output);
        if (into.size > 0 && from.data != into.data)
          lane()->device().runtime().copy_on_device(into.data, from.data, into.size, go.stream);
        return nccl::abi::Result(nccl::abi::kSuccess);
      });
}

WorkPtr TorchCommCtranAlone::reduced(OpName op, const at::Tensor& output, const at::Tensor& input,
                                     const ReduceOp& reduction, bool async_op,
                                     const OperationOptions& options) {
  const auto context = [&]() -> Context {
    return {.op = std::string(opToString(op)), .comm = std::string(getCommName()), .rank = 0};
  };
  const auto* const given = reduction.factor();
  if (given == nullptr) return copy(op, output, input, async_op, options);
  with_context(context, [&] {
    const auto factor = ctran::factor_of(reduction, input);
    if (!factor) return check_factor(*given, input.scalar_type(), input.numel());  // refuses it
    // On the current stream, which this operation is behind.
    auto into = output.detach().view({-1});
    const auto from = input.detach().view({-1});
    if (factor->element.defined())
      at::mul_out(into, from, factor->element);
    else
      at::mul_out(into, from, c10::scalar_to_tensor(factor->value));
  });
  return copy(op, output, output, async_op, options);
}

WorkPtr TorchCommCtranAlone::broadcast(at::Tensor& tensor, int, bool async_op,
                                       const BroadcastOptions& options) {
  return copy(OpName::broadcast, tensor, tensor, async_op, options);
}

WorkPtr TorchCommCtranAlone::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                                        const AllReduceOptions& options) {
  return reduced(OpName::all_reduce, tensor, tensor, op, async_op, options);
}

WorkPtr TorchCommCtranAlone::reduce(at::Tensor& tensor, int, const ReduceOp& op, bool async_op,
                                    const ReduceOptions& options) {
  return reduced(OpName::reduce, tensor, tensor, op, async_op, options);
}

WorkPtr TorchCommCtranAlone::all_gather_single(at::Tensor& output, const at::Tensor& input,
                                               bool async_op,
                                               const AllGatherSingleOptions& options) {
  return copy(OpName::all_gather_single, output, input, async_op, options);
}

WorkPtr TorchCommCtranAlone::reduce_scatter(at::Tensor& output, const Tensors& input,
                                            const ReduceOp& op, bool async_op,
                                            const ReduceScatterOptions& options) {
  return reduced(OpName::reduce_scatter, output, input.front(), op, async_op, options);
}

WorkPtr TorchCommCtranAlone::reduce_scatter_v(at::Tensor& output, const Tensors& input,
                                              const ReduceOp& op, bool async_op,
                                              const ReduceScatterOptions& options) {
  return reduced(OpName::reduce_scatter_v, output, input.front(), op, async_op, options);
}

WorkPtr TorchCommCtranAlone::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                                   const ReduceOp& op, bool async_op,
                                                   const ReduceScatterSingleOptions& options) {
  return reduced(OpName::reduce_scatter_single, output, input, op, async_op, options);
}

WorkPtr TorchCommCtranAlone::barrier(bool async_op, const BarrierOptions& options) {
  return run(call(OpName::barrier, async_op, options), options, {{}, {}},
             [](const nccl::Launch&) { return nccl::abi::Result(nccl::abi::kSuccess); });
}

std::shared_ptr<TorchCommBackend> TorchCommCtranAlone::split(const std::vector<int>&,
                                                             const std::string&,
                                                             const CommOptions&) {
  throw CommError(Errc::kUnsupported, "the member is split by its communicator",
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
