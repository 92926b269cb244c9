#include "backends/gloo/arithmetic.hpp"

#include <limits>
#include <string>

#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torchcomms/base/error.hpp>

#include "backends/gloo/flat_view.hpp"

namespace torch::comms::gloo {
namespace {

// On this thread, while it lives, operators go straight to their CPU kernels.
class PlainOperators {
 private:
  c10::impl::ExcludeDispatchKeyGuard guard_{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
      c10::python_ks | c10::functorch_transforms_ks |
      c10::DispatchKeySet({c10::DispatchKey::Functionalize, c10::DispatchKey::PythonDispatcher,
                           c10::DispatchKey::PreDispatch})};
};

// a = a op b, element by element.
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
      TC_CHECK(!"plans combine with the seven above only");
  }
}

void flip_sign_bit(at::Tensor& tensor) {
  tensor.bitwise_xor_(tensor.scalar_type() == at::kInt
                          ? at::Scalar(std::numeric_limits<int32_t>::min())
                          : at::Scalar(std::numeric_limits<int64_t>::min()));
}

// torch divides no uint64.
void divide_unsigned(at::Tensor& tensor, uint64_t by) {
  auto* element = static_cast<uint64_t*>(tensor.mutable_data_ptr());
  for (const auto* end = element + tensor.numel(); element != end; ++element) *element /= by;
}

void divide(at::Tensor& tensor, ReductionPlan::Divide how, int size) {
  if (how == ReductionPlan::Divide::kNo || size == 1) return;
  if (how == ReductionPlan::Divide::kUnsigned64)
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

// The elements that a factor multiplies: complex numbers where the data are, not their halves.
at::Tensor as_numbers(const at::Tensor& prepared, const ReductionPlan& plan) {
  if (!plan.complex_data || c10::isComplexType(prepared.scalar_type())) return prepared;
  return typed(prepared, c10::toComplexType(prepared.scalar_type()));
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

}  // namespace

void check_factor(const PreMulSumFactorT& factor, at::ScalarType dtype, int64_t count) {
  const auto refuse = [&](const std::string& what) {
    throw CommError(Errc::kInvalidArgument, "PREMUL_SUM: " + what + " cannot scale " +
                                                std::to_string(count) + " elements of dtype " +
                                                c10::toString(dtype));
  };
  const bool integers = c10::isIntegralType(dtype, /*includeBool=*/true);
  if (std::holds_alternative<double>(factor)) {
    if (integers) refuse("a number as factor (use a tensor of integers)");
    return;
  }
  const auto& tensor = std::get<at::Tensor>(factor);
  if (!tensor.defined()) refuse("an undefined factor");
  const std::string what = std::string("a factor of dtype ") + c10::toString(tensor.scalar_type()) +
                           " with " + std::to_string(tensor.numel()) + " elements on " +
                           tensor.device().str();
  const auto factor_dtype = tensor.scalar_type();
  const bool converts = integers ? c10::isIntegralType(factor_dtype, /*includeBool=*/false)
                                 : c10::isComplexType(dtype) || !c10::isComplexType(factor_dtype);
  const bool fits = tensor.numel() == 1 || tensor.numel() == count;
  if (!converts || !fits || !tensor.device().is_cpu()) refuse(what);
}

at::Tensor prepare(const at::Tensor& tensor, const ReductionPlan& plan,
                   const PreMulSumFactorT* factor, bool own_memory) {
  const PlainOperators plain;
  auto prepared = flat_view(tensor, plan.view);
  if (plan.converts() || own_memory) prepared = convert(prepared, plan.compute);
  if (plan.premultiply) multiply(as_numbers(prepared, plan), *factor);
  if (plan.flip_sign) flip_sign_bit(prepared);
  return prepared;
}

void settle(const at::Tensor& combined, const at::Tensor& output, const ReductionPlan& plan,
            int size) {
  const PlainOperators plain;
  auto result = combined;
  divide(result, plan.divide, size);
  if (plan.flip_sign) flip_sign_bit(result);
  auto target = flat_view(output, plan.view);
  if (target.const_data_ptr() != result.const_data_ptr()) target.copy_(result);
}

void combine_rows(const at::Tensor& rows, bool prepared, const at::Tensor& output,
                  const ReductionPlan& plan, int size) {
  const PlainOperators plain;
  const int64_t count = rows.numel() / size;
  const bool converted = prepared || !plan.converts();
  auto all = rows;
  if (!prepared && plan.flip_sign) flip_sign_bit(all);
  // The first part becomes the result, in its own memory if it needs no conversion: nobody else
  // reads it.
  auto result = slice(rows, 0, count);
  if (!converted) result = convert(result, plan.compute);
  auto part = converted ? at::Tensor() : scratch(count, plan.compute);
  for (int rank = 1; rank < size; ++rank) {
    const auto row = slice(rows, rank * count, count);
    if (!converted) part.copy_(row);
    combine(result, converted ? row : part, plan.combine);
  }
  settle(result, output, plan, size);
}

}  // namespace torch::comms::gloo
