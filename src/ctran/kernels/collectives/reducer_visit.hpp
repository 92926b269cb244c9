#pragma once

#include "ctran/kernels/collectives/reducer_dispatch.hpp"
#include "ctran/kernels/collectives/reducers.hpp"

// Calls visit.template operator()<Reducer>() with the reducer type of an id. There are three groups
// of ids, which nvcc compiles in parallel. For an id of another group the result is
// value-initialized.
namespace torch::comms::ctran::kernels {

template <class Result, class Format, bool kHot, class Visitor>
Result visit_combine_op(CombineOp op, Visitor& visit) {
  switch (op) {
    case CombineOp::kSum:
      return visit.template operator()<Reducer<Format, Sum, kHot>>();
    case CombineOp::kProduct:
      return visit.template operator()<Reducer<Format, Product>>();
    case CombineOp::kMin:
      return visit.template operator()<Reducer<Format, Min>>();
    case CombineOp::kMax:
      return visit.template operator()<Reducer<Format, Max>>();
    default:
      return Result{};
  }
}

// Visits the reducers of a format that parts of complex numbers have.
template <class Result, class Format, bool kHot, class Visitor>
Result visit_part(CombineOp op, Visitor& visit) {
  if (op == CombineOp::kComplexProduct) return visit.template operator()<ComplexProduct<Format>>();
  return visit_combine_op<Result, Format, kHot>(op, visit);
}

template <class Result, class Visitor>
Result visit_floats(ReducerId id, Visitor visit) {
  switch (id.format) {
    case ElementFormat::kF16:
      return visit_part<Result, Float16, true>(id.op, visit);
    case ElementFormat::kBF16:
      return visit_combine_op<Result, BFloat16, true>(id.op, visit);
    case ElementFormat::kF32:
      return visit_part<Result, Plain<float>, true>(id.op, visit);
    case ElementFormat::kF64:
      return visit_part<Result, Plain<double>, false>(id.op, visit);
    default:
      return Result{};
  }
}

template <class Result, class Visitor>
Result visit_small_floats(ReducerId id, Visitor visit) {
  switch (id.format) {
    case ElementFormat::kE5m2:
      return visit_combine_op<Result, Float8E5m2, false>(id.op, visit);
    case ElementFormat::kE4m3fn:
      return visit_combine_op<Result, Float8E4m3fn, false>(id.op, visit);
    case ElementFormat::kE5m2fnuz:
      return visit_combine_op<Result, Float8E5m2fnuz, false>(id.op, visit);
    case ElementFormat::kE4m3fnuz:
      return visit_combine_op<Result, Float8E4m3fnuz, false>(id.op, visit);
    case ElementFormat::kE8m0:
      return visit_combine_op<Result, Float8E8m0fnu, false>(id.op, visit);
    default:
      return Result{};
  }
}

// Only the order and the averages of integers depend on their sign.
template <class Result, class T, class Wide, class Visitor>
Result visit_signed(CombineOp op, Visitor& visit) {
  switch (op) {
    case CombineOp::kMin:
      return visit.template operator()<Reducer<Plain<T>, Min>>();
    case CombineOp::kMax:
      return visit.template operator()<Reducer<Plain<T>, Max>>();
    case CombineOp::kAverage:
      return visit.template operator()<Reducer<Plain<T, Wide>, WrappingSum>>();
    default:
      return Result{};
  }
}
template <class Result, class T, class Wide, class Visitor>
Result visit_unsigned(CombineOp op, Visitor& visit) {
  if (op == CombineOp::kAverage)
    return visit.template operator()<Reducer<Plain<T, Wide>, WrappingSum>>();
  return visit_combine_op<Result, Plain<T>, false>(op, visit);
}

template <class Result, class Visitor>
Result visit_integers(ReducerId id, Visitor visit) {
  if (id.op == CombineOp::kAnd)
    return visit.template operator()<Reducer<Plain<uint32_t>, BitAnd>>();
  if (id.op == CombineOp::kOr) return visit.template operator()<Reducer<Plain<uint32_t>, BitOr>>();
  if (id.op == CombineOp::kXor)
    return visit.template operator()<Reducer<Plain<uint32_t>, BitXor>>();
  switch (id.format) {
    case ElementFormat::kU8:
      return visit_unsigned<Result, uint8_t, uint32_t>(id.op, visit);
    case ElementFormat::kI8:
      return visit_signed<Result, int8_t, int32_t>(id.op, visit);
    case ElementFormat::kU16:
      return visit_unsigned<Result, uint16_t, uint32_t>(id.op, visit);
    case ElementFormat::kI16:
      return visit_signed<Result, int16_t, int32_t>(id.op, visit);
    case ElementFormat::kU32:
      return visit_unsigned<Result, uint32_t, uint64_t>(id.op, visit);
    case ElementFormat::kI32:
      return visit_signed<Result, int32_t, int64_t>(id.op, visit);
    case ElementFormat::kU64:
      return visit_unsigned<Result, uint64_t, uint64_t>(id.op, visit);
    case ElementFormat::kI64:
      return visit_signed<Result, int64_t, int64_t>(id.op, visit);
    default:
      return Result{};
  }
}

}  // namespace torch::comms::ctran::kernels
