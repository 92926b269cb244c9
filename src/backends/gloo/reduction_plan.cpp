#include "backends/gloo/reduction_plan.hpp"

#include <optional>
#include <string>

#include <torchcomms/base/error.hpp>

#include "backends/gloo/torch_compat.hpp"
#include "core/options/dtype_name.hpp"

namespace torch::comms::gloo {
namespace {

using at::ScalarType;
using Divide = ReductionPlan::DivideMode;

enum class GlooDtypeClass : uint8_t { kFloat, kHalf, kSigned, kUnsigned, kBool, kComplex };

// How Gloo can combine a dtype. `is_native` is the dtype that Gloo uses for the same bits. `wide`
// is the dtype to convert to if there is none; for complex numbers, the dtype to multiply in.
struct GlooDtypeRow {
  ScalarType dtype;
  GlooDtypeClass kind;
  std::optional<ScalarType> is_native, wide;
};

constexpr std::optional<ScalarType> kNone = std::nullopt;
constexpr GlooDtypeRow kDtypeRows[] = {
    {ScalarType::Double, GlooDtypeClass::kFloat, ScalarType::Double, kNone},
    {ScalarType::Float, GlooDtypeClass::kFloat, ScalarType::Float, kNone},
    {ScalarType::Half, GlooDtypeClass::kHalf, ScalarType::Half, ScalarType::Float},
    {ScalarType::BFloat16, GlooDtypeClass::kHalf, ScalarType::BFloat16, ScalarType::Float},
    {ScalarType::Float8_e5m2, GlooDtypeClass::kFloat, kNone, ScalarType::Float},
    {ScalarType::Float8_e4m3fn, GlooDtypeClass::kFloat, kNone, ScalarType::Float},
    {ScalarType::Float8_e5m2fnuz, GlooDtypeClass::kFloat, kNone, ScalarType::Float},
    {ScalarType::Float8_e4m3fnuz, GlooDtypeClass::kFloat, kNone, ScalarType::Float},
    {ScalarType::Float8_e8m0fnu, GlooDtypeClass::kFloat, kNone, ScalarType::Float},
    {ScalarType::Char, GlooDtypeClass::kSigned, ScalarType::Char, ScalarType::Int},
    {ScalarType::Short, GlooDtypeClass::kSigned, kNone, ScalarType::Int},
    {ScalarType::Int, GlooDtypeClass::kSigned, ScalarType::Int, ScalarType::Long},
    {ScalarType::Long, GlooDtypeClass::kSigned, ScalarType::Long, kNone},
    {ScalarType::Byte, GlooDtypeClass::kUnsigned, ScalarType::Byte, ScalarType::Int},
    {ScalarType::UInt16, GlooDtypeClass::kUnsigned, kNone, ScalarType::Int},
    {ScalarType::UInt32, GlooDtypeClass::kUnsigned, ScalarType::Int, ScalarType::Long},
    {ScalarType::UInt64, GlooDtypeClass::kUnsigned, ScalarType::Long, kNone},
    {ScalarType::Bool, GlooDtypeClass::kBool, ScalarType::Byte, kNone},
    {ScalarType::ComplexHalf, GlooDtypeClass::kComplex, ScalarType::Half, ScalarType::ComplexFloat},
    {ScalarType::ComplexFloat, GlooDtypeClass::kComplex, ScalarType::Float,
     ScalarType::ComplexFloat},
    {ScalarType::ComplexDouble, GlooDtypeClass::kComplex, ScalarType::Double,
     ScalarType::ComplexDouble},
};

constexpr int64_t kConvertUpTo = int64_t{64} * 1024;  // bytes; below, latency dominates

const GlooDtypeRow* find_row(ScalarType dtype) {
  for (const auto& row : kDtypeRows)
    if (row.dtype == dtype) return &row;
  return nullptr;
}

bool is_bitwise(RedOpType op) {
  return op == RedOpType::BAND || op == RedOpType::BOR || op == RedOpType::BXOR;
}
bool is_order(RedOpType op) { return op == RedOpType::MIN || op == RedOpType::MAX; }

bool is_defined(GlooDtypeClass kind, RedOpType op) {
  if (is_bitwise(op))
    return kind == GlooDtypeClass::kSigned || kind == GlooDtypeClass::kUnsigned ||
           kind == GlooDtypeClass::kBool;
  if (is_order(op)) return kind != GlooDtypeClass::kComplex;
  if (op == RedOpType::PREMUL_SUM) return kind != GlooDtypeClass::kBool;
  return true;
}

// Returns: the plan for bool, where sums and averages mean "any" and "all".
ReductionPlan plan_bool(RedOpType op) {
  const bool any = op == RedOpType::SUM || op == RedOpType::MAX || op == RedOpType::BOR;
  const auto combine = op == RedOpType::BXOR ? RedOpType::BXOR
                       : any                 ? RedOpType::MAX
                                             : RedOpType::MIN;
  return {.view = ScalarType::Byte, .compute = ScalarType::Byte, .combine = combine};
}

ReductionPlan plan_integer(const GlooDtypeRow& row, RedOpType op) {
  if (is_bitwise(op)) {
    const auto view = row.is_native.value_or(ScalarType::Byte);
    return {.view = view, .compute = view, .combine = op};
  }
  const bool average = op == RedOpType::AVG;
  const bool widen = !row.is_native || (average && row.wide);
  ReductionPlan plan{.view = widen ? row.dtype : *row.is_native,
                     .compute = widen ? *row.wide : *row.is_native,
                     .combine = is_order(op) || op == RedOpType::PRODUCT ? op : RedOpType::SUM};
  if (average) plan.divide = row.dtype == ScalarType::UInt64 ? Divide::kUnsigned64 : Divide::kYes;
  if (is_order(op) && row.dtype != plan.view && row.kind == GlooDtypeClass::kUnsigned)
    plan.keys = OrderKeys::kUnsigned;
  plan.premultiply = op == RedOpType::PREMUL_SUM;
  return plan;
}

// Returns: true if half or bfloat16 `parts` are accumulated in float.
bool widen_half(ScalarType part, RedOpType op, int size, int64_t parts, CombineEngine arithmetic) {
  if (is_order(op)) return false;
  if (arithmetic == CombineEngine::kLocal) return true;
  if (part == ScalarType::Half && op != RedOpType::SUM && op != RedOpType::PRODUCT) return true;
  const bool exact = size <= 2 && (op == RedOpType::SUM || op == RedOpType::PRODUCT);
  return !exact && parts * 2 <= kConvertUpTo;
}

ReductionPlan plan_float(const GlooDtypeRow& row, RedOpType op, int size, int64_t count,
                         CombineEngine arithmetic) {
  const bool complex_data = row.kind == GlooDtypeClass::kComplex;
  if (complex_data && op == RedOpType::PRODUCT)
    return {.view = row.dtype,
            .compute = *row.wide,
            .combine = op,
            .is_complex = true,
            .gathers_inputs = true};
  const auto part =
      row.is_native.value_or(row.dtype);  // a number, or one of the two of a complex one
  const bool half = part == ScalarType::Half || part == ScalarType::BFloat16;
  const int64_t parts = complex_data ? 2 * count : count;
  // The local loop propagates NaN, and a single rank compares nothing.
  const bool by_keys = is_order(op) && arithmetic == CombineEngine::kGloo && size > 1;
  const bool widen =
      !row.is_native || (half && (by_keys || widen_half(part, op, size, parts, arithmetic)));
  return {.view = part,
          .compute = widen ? ScalarType::Float : part,
          .combine = is_order(op) || op == RedOpType::PRODUCT ? op : RedOpType::SUM,
          .divide = op == RedOpType::AVG ? Divide::kYes : Divide::kNo,
          .keys = by_keys ? OrderKeys::kFloat : OrderKeys::kNone,
          .premultiply = op == RedOpType::PREMUL_SUM,
          .is_complex = complex_data};
}

}  // namespace

ReductionPlan plan_reduction(ScalarType dtype, RedOpType op, int size, int64_t count,
                             CombineEngine arithmetic) {
  const GlooDtypeRow* row = find_row(dtype);
  if (row == nullptr || !is_defined(row->kind, op))
    throw CommError(Errc::kInvalidArgument, "reduction " + std::string(toString(op)) +
                                                " is not defined for dtype " + dtype_name(dtype));
  switch (row->kind) {
    case GlooDtypeClass::kBool:
      return plan_bool(op);
    case GlooDtypeClass::kSigned:
    case GlooDtypeClass::kUnsigned:
      return plan_integer(*row, op);
    default:
      return plan_float(*row, op, size, count, arithmetic);
  }
}

}  // namespace torch::comms::gloo
