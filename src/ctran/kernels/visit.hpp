#pragma once

#include "ctran/kernels/cells.hpp"
#include "ctran/kernels/reducers.hpp"

// The reducer of a cell, as a type: visit.template operator()<Reducer>(), in three groups, since
// nvcc compiles them beside each other. A cell of another group gives a value-initialised result.
namespace torch::comms::ctran::kernels {

template <class Result, class Format, bool kHot, class Visitor>
Result visit_verb(Verb verb, Visitor& visit) {
  switch (verb) {
    case Verb::kSum:
      return visit.template operator()<Reducer<Format, Sum, kHot>>();
    case Verb::kProduct:
      return visit.template operator()<Reducer<Format, Product>>();
    case Verb::kMin:
      return visit.template operator()<Reducer<Format, Min>>();
    case Verb::kMax:
      return visit.template operator()<Reducer<Format, Max>>();
    default:
      return Result{};
  }
}

// Complex numbers have parts of these.
template <class Result, class Format, bool kHot, class Visitor>
Result visit_part(Verb verb, Visitor& visit) {
  if (verb == Verb::kComplexProduct) return visit.template operator()<ComplexProduct<Format>>();
  return visit_verb<Result, Format, kHot>(verb, visit);
}

template <class Result, class Visitor>
Result visit_floats(Cell cell, Visitor visit) {
  switch (cell.number) {
    case Number::kF16:
      return visit_part<Result, Float16, true>(cell.verb, visit);
    case Number::kBF16:
      return visit_verb<Result, BFloat16, true>(cell.verb, visit);
    case Number::kF32:
      return visit_part<Result, Plain<float>, true>(cell.verb, visit);
    case Number::kF64:
      return visit_part<Result, Plain<double>, false>(cell.verb, visit);
    default:
      return Result{};
  }
}

template <class Result, class Visitor>
Result visit_small_floats(Cell cell, Visitor visit) {
  switch (cell.number) {
    case Number::kE5m2:
      return visit_verb<Result, Float8E5m2, false>(cell.verb, visit);
    case Number::kE4m3fn:
      return visit_verb<Result, Float8E4m3fn, false>(cell.verb, visit);
    case Number::kE5m2fnuz:
      return visit_verb<Result, Float8E5m2fnuz, false>(cell.verb, visit);
    case Number::kE4m3fnuz:
      return visit_verb<Result, Float8E4m3fnuz, false>(cell.verb, visit);
    case Number::kE8m0:
      return visit_verb<Result, Float8E8m0fnu, false>(cell.verb, visit);
    default:
      return Result{};
  }
}

// Only the order and the averages of integers know of a sign.
template <class Result, class T, class Wide, class Visitor>
Result visit_signed(Verb verb, Visitor& visit) {
  switch (verb) {
    case Verb::kMin:
      return visit.template operator()<Reducer<Plain<T>, Min>>();
    case Verb::kMax:
      return visit.template operator()<Reducer<Plain<T>, Max>>();
    case Verb::kAverage:
      return visit.template operator()<Reducer<Plain<T, Wide>, WrappingSum>>();
    default:
      return Result{};
  }
}
template <class Result, class T, class Wide, class Visitor>
Result visit_unsigned(Verb verb, Visitor& visit) {
  if (verb == Verb::kAverage)
    return visit.template operator()<Reducer<Plain<T, Wide>, WrappingSum>>();
  return visit_verb<Result, Plain<T>, false>(verb, visit);
}

template <class Result, class Visitor>
Result visit_integers(Cell cell, Visitor visit) {
  if (cell.verb == Verb::kAnd) return visit.template operator()<Reducer<Plain<uint32_t>, BitAnd>>();
  if (cell.verb == Verb::kOr) return visit.template operator()<Reducer<Plain<uint32_t>, BitOr>>();
  if (cell.verb == Verb::kXor) return visit.template operator()<Reducer<Plain<uint32_t>, BitXor>>();
  switch (cell.number) {
    case Number::kU8:
      return visit_unsigned<Result, uint8_t, uint32_t>(cell.verb, visit);
    case Number::kI8:
      return visit_signed<Result, int8_t, int32_t>(cell.verb, visit);
    case Number::kU16:
      return visit_unsigned<Result, uint16_t, uint32_t>(cell.verb, visit);
    case Number::kI16:
      return visit_signed<Result, int16_t, int32_t>(cell.verb, visit);
    case Number::kU32:
      return visit_unsigned<Result, uint32_t, uint64_t>(cell.verb, visit);
    case Number::kI32:
      return visit_signed<Result, int32_t, int64_t>(cell.verb, visit);
    case Number::kU64:
      return visit_unsigned<Result, uint64_t, uint64_t>(cell.verb, visit);
    case Number::kI64:
      return visit_signed<Result, int64_t, int64_t>(cell.verb, visit);
    default:
      return Result{};
  }
}

}  // namespace torch::comms::ctran::kernels
