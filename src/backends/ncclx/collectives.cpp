#include "backends/nccl/run.hpp"
#include "backends/ncclx/ncclx_backend.hpp"
#include "backends/ncclx/offers.hpp"
#include "backends/ncclx/team_kernels.hpp"

// Collectives that kernels may run. All others are the library's, as is what they do not take.
namespace torch::comms {

using ctran::kernels::Call;
using ctran::kernels::Collective;
using ncclx::move_call;
using ncclx::reduce_call;

namespace {

// What users give a kernel beyond an operation's limit: whoever watches the operation is to find
// out first. Of a graph's launches there is nobody else.
constexpr std::chrono::milliseconds kGrace{500};

}  // namespace

WorkPtr TorchCommNCCLX::offer(const Offer& offer, bool async_op, const OperationOptions& options) {
  auto now = call(offer.op, async_op, options);
  if (!has_met_ && getSize() > 1 && !is_capturing()) meet_by_gathering();
  auto made = offer.call;
  const auto wish = wish_for(made.collective, options);
  if (!are_taken(made, offer.bytes, wish)) return nullptr;
  made.limit_ns = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now.limit + kGrace).count());
  now.ends_itself = true;
  return run(now, options, {offer.tensors, {}}, [&](const nccl::Launch& go) {
    kernels_->launch(made, go.stream);
    return nccl::abi::Result(nccl::abi::kSuccess);
  });
}

WorkPtr TorchCommNCCLX::broadcast(at::Tensor& tensor, int root, bool async_op,
                                  const BroadcastOptions& options) {
  auto call = move_call(Collective::kBroadcast, tensor.nbytes(), tensor, tensor);
  call.root = root;
  if (auto work = offer({OpName::broadcast, call, tensor.nbytes(), {&tensor}}, async_op, options))
    return work;
  return TorchCommVendor::broadcast(tensor, root, async_op, options);
}

WorkPtr TorchCommNCCLX::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                                   const AllReduceOptions& options) {
  const auto count = static_cast<size_t>(tensor.numel());
  if (const auto call = reduce_call(Collective::kAllReduce, op, count, tensor, tensor))
    if (auto work =
            offer({OpName::all_reduce, *call, tensor.nbytes(), {&tensor}}, async_op, options))
      return work;
  return TorchCommVendor::all_reduce(tensor, op, async_op, options);
}

WorkPtr TorchCommNCCLX::reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                               const ReduceOptions& options) {
  const auto count = static_cast<size_t>(tensor.numel());
  // The others' tensors stay as they are.
  const auto into = getRank() == root ? tensor : at::Tensor();
  if (auto call = reduce_call(Collective::kReduce, op, count, tensor, into)) {
    call->root = root;
    if (auto work = offer({OpName::reduce, *call, tensor.nbytes(), {&tensor}}, async_op, options))
      return work;
  }
  return TorchCommVendor::reduce(tensor, root, op, async_op, options);
}

WorkPtr TorchCommNCCLX::all_gather_single(at::Tensor& output, const at::Tensor& input,
                                          bool async_op, const AllGatherSingleOptions& options) {
  const auto call = move_call(Collective::kAllGather, input.nbytes(), input, output);
  if (auto work = offer({OpName::all_gather_single, call, output.nbytes(), {&output, &input}},
                        async_op, options))
    return work;
  return TorchCommVendor::all_gather_single(output, input, async_op, options);
}

WorkPtr TorchCommNCCLX::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                              const ReduceOp& op, bool async_op,
                                              const ReduceScatterSingleOptions& options) {
  const auto count = static_cast<size_t>(output.numel());
  if (const auto call = reduce_call(Collective::kReduceScatter, op, count, input, output))
    if (auto work = offer({OpName::reduce_scatter_single, *call, input.nbytes(), {&output, &input}},
                          async_op, options))
      return work;
  return TorchCommVendor::reduce_scatter_single(output, input, op, async_op, options);
}

WorkPtr TorchCommNCCLX::all_to_all_single(at::Tensor& output, const at::Tensor& input,
                                          bool async_op, const AllToAllSingleOptions& options) {
  const auto part = input.nbytes() / static_cast<size_t>(getSize());
  const auto source = nccl::overlap(input, output) ? input.clone() : input;
  const auto call = move_call(Collective::kAllToAll, part, source, output);
  if (auto work = offer({OpName::all_to_all_single, call, input.nbytes(), {&output, &source}},
                        async_op, options))
    return work;
  return TorchCommVendor::all_to_all_single(output, source, async_op, options);
}

WorkPtr TorchCommNCCLX::barrier(bool async_op, const BarrierOptions& options) {
  const auto call = move_call(Collective::kBarrier, 0, {}, {});
  if (auto work = offer({OpName::barrier, call, 0, {}}, async_op, options)) return work;
  return TorchCommVendor::barrier(async_op, options);
}

WorkPtr TorchCommNCCLX::gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                      bool async_op, const GatherSingleOptions& options) {
  const bool is_root = getRank() == root;
  auto call =
      move_call(Collective::kGather, input.nbytes(), input, is_root ? output : at::Tensor());
  call.root = root;
  const auto bytes = input.nbytes() * static_cast<size_t>(getSize());
  const auto& kept = is_root ? output : input;
  if (auto work = offer({OpName::gather_single, call, bytes, {&kept, &input}}, async_op, options))
    return work;
  return TorchCommVendor::gather_single(output, input, root, async_op, options);
}

}  // namespace torch::comms
