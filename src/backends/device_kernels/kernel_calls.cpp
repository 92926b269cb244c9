#include "backends/device_kernels/kernel_calls.hpp"

#include <variant>

#include "backends/nccl/streams/tensor_args.hpp"

namespace torch::comms::ctran {
namespace {

kernels::KernelCall call_between(kernels::Collective collective, size_t count,
                                 const at::Tensor& input, const at::Tensor& output) {
  kernels::KernelCall call{};
  call.collective = collective;
  call.count = count;
  call.dtype = Dtype::kUInt8;
  if (input.defined()) call.input = nccl::TensorBytes(input).data;
  if (output.defined()) call.output = nccl::TensorBytes(output).data;
  return call;
}

}  // namespace

kernels::KernelCall make_copy_call(kernels::Collective collective, size_t count,
                                   const at::Tensor& input, const at::Tensor& output) {
  return call_between(collective, count, input, output);
}

std::optional<KernelCallFactor> kernel_call_factor(const comms::ReduceOp& op,
                                                   const at::Tensor& tensor) {
  if (op.type() != RedOpType::PREMUL_SUM) return KernelCallFactor{};
  const auto* factor = op.factor();
  if (factor == nullptr) return std::nullopt;
  if (const auto* value = std::get_if<double>(factor)) {
    if (!tensor.is_floating_point() && !tensor.is_complex()) return std::nullopt;
    return KernelCallFactor{*value, {}};
  }
  const at::Tensor element =
      nccl::factor_element(std::get<at::Tensor>(*factor), tensor.scalar_type(), tensor.device());
  // A factor on the CPU is passed as an exact number, without device memory.
  if (element.is_cpu() && tensor.is_floating_point())
    return KernelCallFactor{element.item<double>(), {}};
  return KernelCallFactor{1, element.to(tensor.device())};
}

kernels::KernelCall make_reduce_call(kernels::Collective collective, const comms::ReduceOp& op,
                                     const KernelCallFactor& factor, size_t count,
                                     const at::Tensor& input, const at::Tensor& output) {
  auto call = call_between(collective, count, input, output);
  call.dtype = static_cast<Dtype>(input.scalar_type());
  call.op = static_cast<ReduceOpCode>(op.type());
  call.factor_value = factor.value;
  if (factor.element.defined()) call.factor = nccl::TensorBytes(factor.element).data;
  return call;
}

}  // namespace torch::comms::ctran
