#include "backends/nccl/streams/premul_scaling.hpp"

#include <string>
#include <variant>

#include <ATen/ScalarOps.h>
#include <ATen/ops/mul.h>
#include <torchcomms/base/error.hpp>

#include "backends/nccl/streams/tensor_args.hpp"
#include "core/options/dtype_name.hpp"

namespace torch::comms::nccl {
namespace {

// Returns: a signed dtype of the same width, whose products have the same bits. Torch multiplies
// few unsigned integer dtypes on GPUs.
at::ScalarType multiplied_as(at::ScalarType dtype) {
  switch (dtype) {
    case at::kUInt16:
      return at::kShort;
    case at::kUInt32:
      return at::kInt;
    case at::kUInt64:
      return at::kLong;
    default:
      return dtype;
  }
}

// Returns: the factor as a tensor without dimensions. On the CPU, torch then treats it as a number,
// which needs no copy.
at::Tensor element_of(const PreMulSumFactorT& factor, const at::Tensor& input) {
  if (const auto* tensor = std::get_if<at::Tensor>(&factor))
    return factor_element(*tensor, input.scalar_type(), input.device()).detach().squeeze();
  if (input.is_floating_point() || input.is_complex())
    return c10::scalar_to_tensor(std::get<double>(factor));
  throw CommError(Errc::kInvalidArgument,
                  std::string("PREMUL_SUM: a number cannot scale data of dtype ") +
                      dtype_name(input.scalar_type()) + "; use a tensor factor of that dtype");
}

}  // namespace

void scale(const at::Tensor& output, const at::Tensor& input, const PreMulSumFactorT& factor) {
  auto element = element_of(factor, input);
  auto into = output.detach().view({-1});
  auto from = input.detach().view({-1});
  if (c10::isFloat8Type(from.scalar_type())) {
    into.copy_(at::mul(from.to(at::kFloat), element.to(at::kFloat)));
    return;
  }
  const auto as = multiplied_as(from.scalar_type());
  if (as != from.scalar_type()) {
    into = into.view(as);
    from = from.view(as);
    element = element.view(as);
  }
  at::mul_out(into, from, element);
}

}  // namespace torch::comms::nccl
