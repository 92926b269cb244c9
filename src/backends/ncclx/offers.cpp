#include "backends/ncclx/offers.hpp"

#include <variant>

#include "backends/nccl/elements.hpp"

namespace torch::comms::ncclx {
namespace {

namespace kernels = ctran::kernels;

kernels::Call call_between(kernels::Collective collective, size_t count, const at::Tensor& input,
                           const at::Tensor& output) {
  kernels::Call call{};
  call.collective = collective;
  call.count = count;
  call.dtype = ctran::Dtype::kUInt8;
  if (input.defined()) call.input = nccl::Bytes(input).data;
  if (output.defined()) call.output = nccl::Bytes(output).data;
  return call;
}

// A factor that the host knows.
std::optional<double> factor_value(const PreMulSumFactorT& factor, const at::Tensor& tensor) {
  if (!tensor.is_floating_point()) return std::nullopt;
  if (const auto* value = std::get_if<double>(&factor)) return *value;
  return std::nullopt;
}

}  // namespace

kernels::Call move_call(kernels::Collective collective, size_t count, const at::Tensor& input,
                        const at::Tensor& output) {
  return call_between(collective, count, input, output);
}

std::optional<kernels::Call> reduce_call(kernels::Collective collective, const ReduceOp& op,
                                         size_t count, const at::Tensor& input,
                                         const at::Tensor& output) {
  auto call = call_between(collective, count, input, output);
  call.dtype = static_cast<ctran::Dtype>(input.scalar_type());
  call.op = static_cast<ctran::ReduceOp>(op.type());
  if (op.type() != RedOpType::PREMUL_SUM) return call;
  const auto* factor = op.factor();
  const auto value = factor == nullptr ? std::nullopt : factor_value(*factor, input);
  if (!value) return std::nullopt;
  call.factor_value = *value;
  return call;
}

}  // namespace torch::comms::ncclx
