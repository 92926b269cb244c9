#include "backends/gloo/local_reduction.hpp"

#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <torchcomms/base/error.hpp>

#include "backends/gloo/flat_view.hpp"
#include "core/comm/operand_checks.hpp"

namespace torch::comms::gloo {
namespace {

// Computes a = a op b, element by element.
void combine(at::Tensor& a, const at::Tensor& b, RedOpType op) {
  switch (op) {
    case RedOpType::SUM:
      a.add_(b);
      return;
    case RedOpType::PRODUCT:
      a.mul_(b);
      return;
    case RedOpType::MIN:
      at::minimum_out(a, a, b);
      return;
    case RedOpType::MAX:
      at::maximum_out(a, a, b);
      return;
    case RedOpType::BAND:
      a.bitwise_and_(b);
      return;
    case RedOpType::BOR:
      a.bitwise_or_(b);
      return;
    case RedOpType::BXOR:
      a.bitwise_xor_(b);
      return;
    default:
      TC_CHECK(!"a reduction plan has an operation that combine() does not support");
  }
}

// Divides uint64 elements, for which torch has no division.
void divide_unsigned(at::Tensor& tensor, uint64_t by) {
  auto* element = static_cast<uint64_t*>(tensor.mutable_data_ptr());
  for (const auto* end = element + tensor.numel(); element != end; ++element) *element /= by;
}

void divide(at::Tensor& tensor, ReductionPlan::DivideMode how, int size) {
  if (how == ReductionPlan::DivideMode::kNo || size == 1) return;
  if (how == ReductionPlan::DivideMode::kUnsigned64)
    divide_unsigned(tensor, static_cast<uint64_t>(size));
  else if (c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false))
    tensor.div_(size, "trunc");
  else
    tensor.div_(size);
}

at::Tensor convert(const at::Tensor& flat, at::ScalarType dtype) {
  auto converted = scratch(flat.numel(), dtype);
  converted.copy_(flat);
  return converted;
}

// Returns: the elements that a factor multiplies. These are complex numbers if the data are
// complex, not their halves.
at::Tensor as_numbers(const at::Tensor& prepared, const ReductionPlan& plan) {
  if (!plan.is_complex || c10::isComplexType(prepared.scalar_type())) return prepared;
  return view_as(prepared, c10::toComplexType(prepared.scalar_type()));
}

void multiply(const at::Tensor& numbers, const PreMulSumFactorT& factor) {
  if (const auto* number = std::get_if<double>(&factor)) {
    numbers.mul_(*number);
    return;
  }
  const auto& tensor = std::get<at::Tensor>(factor);
  const auto flat = tensor.resolve_conj().resolve_neg().contiguous();
  auto multiplier = convert(flat_view(flat, flat.scalar_type()), numbers.scalar_type());
  numbers.mul_(multiplier);
}

// Returns: the order keys of the elements, in the same memory, or the elements if the plan has no
// keys.
at::Tensor with_keys(const at::Tensor& elements, const ReductionPlan& plan) {
  return plan.keys == OrderKeys::kNone ? elements
                                       : to_order_keys(elements, plan.keys, plan.combine);
}

}  // namespace

at::Tensor prepare(const at::Tensor& tensor, const ReductionPlan& plan,
                   const PreMulSumFactorT* factor, bool own_memory) {
  const PlainDispatchGuard plain;
  auto prepared = flat_view(tensor, plan.view);
  if (plan.has_conversion() || own_memory) prepared = convert(prepared, plan.compute);
  if (plan.premultiply) multiply(as_numbers(prepared, plan), *factor);
  return with_keys(prepared, plan);
}

void write_result(const at::Tensor& combined, const at::Tensor& output, const ReductionPlan& plan,
                  int size) {
  const PlainDispatchGuard plain;
  auto result = combined;
  divide(result, plan.divide, size);
  if (plan.keys != OrderKeys::kNone) result = from_order_keys(result, plan.keys, plan.compute);
  auto target = flat_view(output, plan.view);
  if (target.const_data_ptr() != result.const_data_ptr()) target.copy_(result);
}

void combine_rows(const at::Tensor& rows, bool prepared, const at::Tensor& output,
                  const ReductionPlan& plan, int size) {
  const PlainDispatchGuard plain;
  const int64_t count = rows.numel() / size;
  const bool converted = prepared || !plan.has_conversion();
  const auto all = prepared ? rows : with_keys(rows, plan);
  // The first part becomes the result, in its own memory if it needs no conversion, because it is
  // not read again.
  auto result = slice(all, 0, count);
  if (!converted) result = convert(result, plan.compute);
  auto part = converted ? at::Tensor() : scratch(count, plan.compute);
  for (int rank = 1; rank < size; ++rank) {
    const auto row = slice(all, rank * count, count);
    if (!converted) part.copy_(row);
    combine(result, converted ? row : part, plan.combine);
  }
  write_result(result, output, plan, size);
}

}  // namespace torch::comms::gloo
