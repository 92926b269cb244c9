#include "ctran/kernels/collectives/reducer_dispatch.hpp"

namespace torch::comms::ctran::kernels {
namespace {

enum class DtypeClass : uint8_t { kNone, kInteger, kBool, kFloat, kComplex };

struct DtypeElement {
  DtypeClass kind;
  ElementFormat format;      // of one part of a complex number
  ElementFormat sum_format;  // of an integer: the format in which it is added
};

DtypeElement element_of(Dtype dtype) {
  using enum ElementFormat;
  switch (dtype) {
    case Dtype::kUInt8:
      return {DtypeClass::kInteger, kU8, kU8};
    case Dtype::kInt8:
      return {DtypeClass::kInteger, kI8, kU8};
    case Dtype::kUInt16:
      return {DtypeClass::kInteger, kU16, kU16};
    case Dtype::kInt16:
      return {DtypeClass::kInteger, kI16, kU16};
    case Dtype::kUInt32:
      return {DtypeClass::kInteger, kU32, kU32};
    case Dtype::kInt32:
      return {DtypeClass::kInteger, kI32, kU32};
    case Dtype::kUInt64:
      return {DtypeClass::kInteger, kU64, kU64};
    case Dtype::kInt64:
      return {DtypeClass::kInteger, kI64, kU64};
    case Dtype::kBool:
      return {DtypeClass::kBool, kU8, kU8};
    case Dtype::kFloat16:
      return {DtypeClass::kFloat, kF16, kF16};
    case Dtype::kBFloat16:
      return {DtypeClass::kFloat, kBF16, kBF16};
    case Dtype::kFloat32:
      return {DtypeClass::kFloat, kF32, kF32};
    case Dtype::kFloat64:
      return {DtypeClass::kFloat, kF64, kF64};
    case Dtype::kFloat8E5m2:
      return {DtypeClass::kFloat, kE5m2, kE5m2};
    case Dtype::kFloat8E4m3fn:
      return {DtypeClass::kFloat, kE4m3fn, kE4m3fn};
    case Dtype::kFloat8E5m2fnuz:
      return {DtypeClass::kFloat, kE5m2fnuz, kE5m2fnuz};
    case Dtype::kFloat8E4m3fnuz:
      return {DtypeClass::kFloat, kE4m3fnuz, kE4m3fnuz};
    case Dtype::kFloat8E8m0fnu:
      return {DtypeClass::kFloat, kE8m0, kE8m0};
    case Dtype::kComplex32:
      return {DtypeClass::kComplex, kF16, kF16};
    case Dtype::kComplex64:
      return {DtypeClass::kComplex, kF32, kF32};
    case Dtype::kComplex128:
      return {DtypeClass::kComplex, kF64, kF64};
  }
  return {DtypeClass::kNone, kU8, kU8};
}

bool is_bitwise(ReduceOpCode op) {
  return op == ReduceOpCode::kBitAnd || op == ReduceOpCode::kBitOr || op == ReduceOpCode::kBitXor;
}

CombineOp combine_op_of(ReduceOpCode op) {
  switch (op) {
    case ReduceOpCode::kProduct:
      return CombineOp::kProduct;
    case ReduceOpCode::kMin:
      return CombineOp::kMin;
    case ReduceOpCode::kMax:
      return CombineOp::kMax;
    case ReduceOpCode::kBitAnd:
      return CombineOp::kAnd;
    case ReduceOpCode::kBitOr:
      return CombineOp::kOr;
    case ReduceOpCode::kBitXor:
      return CombineOp::kXor;
    default:
      return CombineOp::kSum;
  }
}

// Truth values are bytes of 0 and 1: "any" is their maximum, "all" their minimum.
CombineOp combine_op_of_bool(ReduceOpCode op) {
  if (op == ReduceOpCode::kBitXor) return CombineOp::kXor;
  const bool any =
      op == ReduceOpCode::kSum || op == ReduceOpCode::kMax || op == ReduceOpCode::kBitOr;
  return any ? CombineOp::kMax : CombineOp::kMin;
}

}  // namespace

bool is_defined(Dtype dtype, ReduceOpCode op) noexcept {
  const DtypeClass kind = element_of(dtype).kind;
  if (kind == DtypeClass::kNone || static_cast<size_t>(op) >= kReduceOpCodes) return false;
  if (is_bitwise(op)) return kind == DtypeClass::kInteger || kind == DtypeClass::kBool;
  if (op == ReduceOpCode::kMin || op == ReduceOpCode::kMax) return kind != DtypeClass::kComplex;
  return op != ReduceOpCode::kPremulSum || kind != DtypeClass::kBool;
}

ReducerId reducer_id_of(Dtype dtype, ReduceOpCode op) noexcept {
  const DtypeElement row = element_of(dtype);
  const CombineOp combine_op =
      row.kind == DtypeClass::kBool ? combine_op_of_bool(op) : combine_op_of(op);
  if (combine_op == CombineOp::kAnd || combine_op == CombineOp::kOr ||
      combine_op == CombineOp::kXor)
    return {ElementFormat::kU32, combine_op};
  if (combine_op == CombineOp::kMin || combine_op == CombineOp::kMax)
    return {row.format, combine_op};
  if (row.kind == DtypeClass::kInteger && op == ReduceOpCode::kAverage)
    return {row.format, CombineOp::kAverage};
  if (row.kind == DtypeClass::kComplex && combine_op == CombineOp::kProduct)
    return {row.format, CombineOp::kComplexProduct};
  return {row.sum_format, combine_op};
}

bool needs_wide_ll128(Dtype dtype, ReduceOpCode op) noexcept {
  return dtype == Dtype::kComplex128 &&
         (op == ReduceOpCode::kProduct || op == ReduceOpCode::kPremulSum);
}

bool has_long_ll128(ReducerId id) noexcept {
  return id.op == CombineOp::kSum &&
         (id.format == ElementFormat::kF16 || id.format == ElementFormat::kBF16 ||
          id.format == ElementFormat::kF32);
}

uint64_t nan_of(Dtype dtype) noexcept {
  const DtypeElement row = element_of(dtype);
  if (row.kind != DtypeClass::kFloat && row.kind != DtypeClass::kComplex) return 0;
  switch (row.format) {
    case ElementFormat::kF64:
      return 0x7ff8000000000000;
    case ElementFormat::kF32:
      return 0x7fc000007fc00000;
    case ElementFormat::kF16:
      return 0x7e007e007e007e00;
    case ElementFormat::kBF16:
      return 0x7fc07fc07fc07fc0;
    case ElementFormat::kE5m2fnuz:
    case ElementFormat::kE4m3fnuz:
      return 0x8080808080808080;
    case ElementFormat::kE8m0:
      return 0xffffffffffffffff;
    default:
      return 0x7f7f7f7f7f7f7f7f;
  }
}

}  // namespace torch::comms::ctran::kernels
