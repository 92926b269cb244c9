#include "ctran/kernels/cells.hpp"

namespace torch::comms::ctran::kernels {
namespace {

enum class Kind : uint8_t { kNone, kInteger, kBool, kFloat, kComplex };

struct Row {
  Kind kind;
  Number number;     // of one part of a complex number
  Number unsigned_;  // of an integer: what it is added as
};

Row row_of(Dtype dtype) {
  using enum Number;
  switch (dtype) {
    case Dtype::kUInt8:
      return {Kind::kInteger, kU8, kU8};
    case Dtype::kInt8:
      return {Kind::kInteger, kI8, kU8};
    case Dtype::kUInt16:
      return {Kind::kInteger, kU16, kU16};
    case Dtype::kInt16:
      return {Kind::kInteger, kI16, kU16};
    case Dtype::kUInt32:
      return {Kind::kInteger, kU32, kU32};
    case Dtype::kInt32:
      return {Kind::kInteger, kI32, kU32};
    case Dtype::kUInt64:
      return {Kind::kInteger, kU64, kU64};
    case Dtype::kInt64:
      return {Kind::kInteger, kI64, kU64};
    case Dtype::kBool:
      return {Kind::kBool, kU8, kU8};
    case Dtype::kFloat16:
      return {Kind::kFloat, kF16, kF16};
    case Dtype::kBFloat16:
      return {Kind::kFloat, kBF16, kBF16};
    case Dtype::kFloat32:
      return {Kind::kFloat, kF32, kF32};
    case Dtype::kFloat64:
      return {Kind::kFloat, kF64, kF64};
    case Dtype::kFloat8E5m2:
      return {Kind::kFloat, kE5m2, kE5m2};
    case Dtype::kFloat8E4m3fn:
      return {Kind::kFloat, kE4m3fn, kE4m3fn};
    case Dtype::kFloat8E5m2fnuz:
      return {Kind::kFloat, kE5m2fnuz, kE5m2fnuz};
    case Dtype::kFloat8E4m3fnuz:
      return {Kind::kFloat, kE4m3fnuz, kE4m3fnuz};
    case Dtype::kFloat8E8m0fnu:
      return {Kind::kFloat, kE8m0, kE8m0};
    case Dtype::kComplex32:
      return {Kind::kComplex, kF16, kF16};
    case Dtype::kComplex64:
      return {Kind::kComplex, kF32, kF32};
    case Dtype::kComplex128:
      return {Kind::kComplex, kF64, kF64};
  }
  return {Kind::kNone, kU8, kU8};
}

bool is_bitwise(ReduceOpCode op) {
  return op == ReduceOpCode::kBitAnd || op == ReduceOpCode::kBitOr || op == ReduceOpCode::kBitXor;
}

Verb verb_of(ReduceOpCode op) {
  switch (op) {
    case ReduceOpCode::kProduct:
      return Verb::kProduct;
    case ReduceOpCode::kMin:
      return Verb::kMin;
    case ReduceOpCode::kMax:
      return Verb::kMax;
    case ReduceOpCode::kBitAnd:
      return Verb::kAnd;
    case ReduceOpCode::kBitOr:
      return Verb::kOr;
    case ReduceOpCode::kBitXor:
      return Verb::kXor;
    default:
      return Verb::kSum;
  }
}

// "any" and "all" of truth values, which are bytes of 0 and 1.
Verb verb_of_bool(ReduceOpCode op) {
  if (op == ReduceOpCode::kBitXor) return Verb::kXor;
  const bool any =
      op == ReduceOpCode::kSum || op == ReduceOpCode::kMax || op == ReduceOpCode::kBitOr;
  return any ? Verb::kMax : Verb::kMin;
}

}  // namespace

bool is_defined(Dtype dtype, ReduceOpCode op) noexcept {
  const Kind kind = row_of(dtype).kind;
  if (kind == Kind::kNone || static_cast<size_t>(op) >= kReduceOpCodes) return false;
  if (is_bitwise(op)) return kind == Kind::kInteger || kind == Kind::kBool;
  if (op == ReduceOpCode::kMin || op == ReduceOpCode::kMax) return kind != Kind::kComplex;
  return op != ReduceOpCode::kPremulSum || kind != Kind::kBool;
}

Cell cell_of(Dtype dtype, ReduceOpCode op) noexcept {
  const Row row = row_of(dtype);
  const Verb verb = row.kind == Kind::kBool ? verb_of_bool(op) : verb_of(op);
  if (verb == Verb::kAnd || verb == Verb::kOr || verb == Verb::kXor) return {Number::kU32, verb};
  if (verb == Verb::kMin || verb == Verb::kMax) return {row.number, verb};
  if (row.kind == Kind::kInteger && op == ReduceOpCode::kAverage)
    return {row.number, Verb::kAverage};
  if (row.kind == Kind::kComplex && verb == Verb::kProduct)
    return {row.number, Verb::kComplexProduct};
  return {row.unsigned_, verb};
}

bool needs_wide_lines(Dtype dtype, ReduceOpCode op) noexcept {
  return dtype == Dtype::kComplex128 &&
         (op == ReduceOpCode::kProduct || op == ReduceOpCode::kPremulSum);
}

bool has_long_lines(Cell cell) noexcept {
  return cell.verb == Verb::kSum && (cell.number == Number::kF16 || cell.number == Number::kBF16 ||
                                     cell.number == Number::kF32);
}

uint64_t nan_of(Dtype dtype) noexcept {
  const Row row = row_of(dtype);
  if (row.kind != Kind::kFloat && row.kind != Kind::kComplex) return 0;
  switch (row.number) {
    case Number::kF64:
      return 0x7ff8000000000000;
    case Number::kF32:
      return 0x7fc000007fc00000;
    case Number::kF16:
      return 0x7e007e007e007e00;
    case Number::kBF16:
      return 0x7fc07fc07fc07fc0;
    case Number::kE5m2fnuz:
    case Number::kE4m3fnuz:
      return 0x8080808080808080;
    case Number::kE8m0:
      return 0xffffffffffffffff;
    default:
      return 0x7f7f7f7f7f7f7f7f;
  }
}

}  // namespace torch::comms::ctran::kernels
