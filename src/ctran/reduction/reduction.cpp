#include "ctran/reduction/reduction.hpp"

#include <algorithm>
#include <string>

#include <torchcomms/base/error.hpp>

#include "base/os/cache_info.hpp"
#include "base/os/streaming_copy.hpp"
#include "ctran/reduction/loop_table.hpp"

namespace torch::comms::ctran {
namespace {

enum class DtypeKind : uint8_t { kFloat, kSmallFloat, kInteger, kBool, kComplex };

DtypeKind kind_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
    case Dtype::kFloat64:
      return DtypeKind::kFloat;
    case Dtype::kFloat16:
    case Dtype::kBFloat16:
    case Dtype::kFloat8E5m2:
    case Dtype::kFloat8E4m3fn:
    case Dtype::kFloat8E5m2fnuz:
    case Dtype::kFloat8E4m3fnuz:
    case Dtype::kFloat8E8m0fnu:
      return DtypeKind::kSmallFloat;
    case Dtype::kComplex32:
    case Dtype::kComplex64:
    case Dtype::kComplex128:
      return DtypeKind::kComplex;
    case Dtype::kBool:
      return DtypeKind::kBool;
    default:
      return DtypeKind::kInteger;
  }
}

bool is_bitwise(ReduceOpCode op) {
  return op == ReduceOpCode::kBitAnd || op == ReduceOpCode::kBitOr || op == ReduceOpCode::kBitXor;
}
bool is_order(ReduceOpCode op) { return op == ReduceOpCode::kMin || op == ReduceOpCode::kMax; }

Dtype part_of(Dtype dtype) {
  if (dtype == Dtype::kComplex32) return Dtype::kFloat16;
  if (dtype == Dtype::kComplex64) return Dtype::kFloat32;
  return dtype == Dtype::kComplex128 ? Dtype::kFloat64 : dtype;
}

Dtype unsigned_of(Dtype dtype) {
  constexpr Dtype kBySize[] = {Dtype::kUInt8, Dtype::kUInt16, Dtype::kUInt32, Dtype::kUInt64};
  const size_t bytes = size_of(dtype);
  return kBySize[bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3];
}

Dtype accumulator_of(Dtype dtype, ReduceOpCode op) {
  if (dtype == Dtype::kComplex32) return Dtype::kComplex64;
  const DtypeKind kind = kind_of(dtype);
  if (kind == DtypeKind::kSmallFloat && !is_order(op)) return Dtype::kFloat32;
  if (kind != DtypeKind::kInteger || op != ReduceOpCode::kAverage || size_of(dtype) == 8)
    return dtype;
  return size_of(dtype) == 4 ? Dtype::kInt64 : Dtype::kInt32;
}

// Maps an operation on bool to "any" (MAX) or "all" (MIN) of bytes that are 0 or 1.
ReduceOpCode op_of_bool(ReduceOpCode op) {
  if (op == ReduceOpCode::kBitXor) return op;
  const bool any =
      op == ReduceOpCode::kSum || op == ReduceOpCode::kMax || op == ReduceOpCode::kBitOr;
  return any ? ReduceOpCode::kMax : ReduceOpCode::kMin;
}

// The entry of LoopTable::reduce that combines elements of a dtype.
struct LoopKey {
  Dtype dtype;
  ReduceOpCode op;
  uint8_t parts;
};
LoopKey loop_key_of(Dtype dtype, ReduceOpCode op) {
  const DtypeKind kind = kind_of(dtype);
  if (kind == DtypeKind::kBool) return {Dtype::kUInt8, op_of_bool(op), 1};
  if (is_bitwise(op)) return {Dtype::kUInt8, op, static_cast<uint8_t>(size_of(dtype))};
  const bool adds = op == ReduceOpCode::kAverage || op == ReduceOpCode::kPremulSum;
  const ReduceOpCode combined = adds ? ReduceOpCode::kSum : op;
  if (kind == DtypeKind::kComplex)
    return {combined == ReduceOpCode::kProduct ? dtype : part_of(dtype), combined, 2};
  return {kind == DtypeKind::kInteger && !is_order(op) ? unsigned_of(dtype) : dtype, combined, 1};
}

ReductionLoop at(const LoopTable::ByDtype<ReductionLoop>& row, Dtype dtype) {
  return row[static_cast<size_t>(dtype)];
}
ReductionLoop at(const LoopTable::ByDtype<std::array<ReductionLoop, kReduceOpCodes>>& table,
                 Dtype dtype, ReduceOpCode op) {
  return table[static_cast<size_t>(dtype)][static_cast<size_t>(op)];
}

const std::byte* bytes(const void* memory) { return static_cast<const std::byte*>(memory); }

}  // namespace

bool Reduction::is_defined(Dtype dtype, ReduceOpCode op) noexcept {
  if (size_of(dtype) == 0 || static_cast<size_t>(op) >= kReduceOpCodes) return false;
  const DtypeKind kind = kind_of(dtype);
  if (is_bitwise(op)) return kind == DtypeKind::kInteger || kind == DtypeKind::kBool;
  if (is_order(op)) return kind != DtypeKind::kComplex;
  return op != ReduceOpCode::kPremulSum || kind != DtypeKind::kBool;
}

Reduction::Reduction(Dtype dtype, ReduceOpCode op, SimdLevel level)
    : dtype_(dtype), accumulator_(accumulator_of(dtype, op)) {
  if (!is_defined(dtype, op))
    throw CommError(Errc::kInvalidArgument, "reduction " + std::string(name_of(op)) +
                                                " is not defined for dtype " +
                                                std::string(name_of(dtype)));
  if (std::ranges::find(simd_levels(), level) == simd_levels().end())
    throw CommError(Errc::kUnsupported,
                    "this machine does not support SIMD level " + std::string(name_of(level)));

  const LoopTable& table = loops_of(level);
  const LoopKey key = loop_key_of(dtype, op), wide = loop_key_of(accumulator_, op);
  const bool integer_average =
      op == ReduceOpCode::kAverage && kind_of(dtype) == DtypeKind::kInteger;
  const bool converts = accumulator_ != dtype_;
  const Dtype part = part_of(dtype_);
  parts_ = key.parts;
  has_divisor_ = op == ReduceOpCode::kAverage && kind_of(dtype) != DtypeKind::kBool;

  combine_ = at(table.reduce, key.dtype, key.op);
  combine_all_ = integer_average ? at(table.reduce, dtype, op) : combine_;
  combine_wide_ = at(table.reduce, wide.dtype, wide.op);
  if (!converts)
    finish_ = combine_all_;
  else if (integer_average)
    finish_ = at(table.finish, dtype, op);
  else
    finish_ = at(table.finish, key.dtype, key.op);
  if (converts) widen_ = at(table.widen, part);
  if (op == ReduceOpCode::kPremulSum) {
    const Dtype scaled = kind_of(dtype) == DtypeKind::kInteger ? key.dtype : dtype;
    scale_ = at(table.scale, scaled);
    widen_scaled_ = converts ? at(table.widen_scaled, scaled) : scale_;
  }
  part_bytes_ = static_cast<uint8_t>(size_of(dtype_) / parts_);
  wide_part_bytes_ = static_cast<uint8_t>(size_of(accumulator_) / parts_);
}

void Reduction::combine(void* into, const void* left, const void* right,
                        size_t count) const noexcept {
  const std::byte* operands[] = {bytes(left), bytes(right)};
  LoopWork work{.into = static_cast<std::byte*>(into), .sources = operands, .operands = 2};
  run_loop(combine_, work, count, parts_, part_bytes_);
}

void Reduction::combine_wide(void* into, const void* left, const void* right,
                             size_t count) const noexcept {
  const std::byte* operands[] = {bytes(left), bytes(right)};
  LoopWork work{.into = static_cast<std::byte*>(into), .sources = operands, .operands = 2};
  run_loop(combine_wide_, work, count, parts_, wide_part_bytes_);
}

void Reduction::reduce(Loop loop, void* into, std::span<const void* const> operands, size_t count,
                       uint32_t ranks) const {
  TC_CHECK(!operands.empty() && operands.size() <= kMostOperands);
  TC_CHECK(ranks != 0 || !has_divisor_);
  const std::byte* sources[kMostOperands];
  std::ranges::transform(operands, sources, bytes);
  LoopWork work{.into = static_cast<std::byte*>(into),
                .sources = sources,
                .operands = operands.size(),
                .divisor = has_divisor_ ? ranks : 1};
  run_loop(loop, work, count, parts_, part_bytes_);
}

void Reduction::combine_all(void* into, std::span<const void* const> operands, size_t count,
                            uint32_t ranks) const {
  reduce(combine_all_, into, operands, count, ranks);
}

void Reduction::finish(void* into, std::span<const void* const> operands, size_t count,
                       uint32_t ranks) const {
  reduce(finish_, into, operands, count, ranks);
}

void Reduction::convert(Loop loop, void* into, const void* from, size_t count, size_t written_bytes,
                        const PremulFactor& factor) const {
  TC_CHECK(loop != nullptr);  // only PREMUL_SUM scales
  const std::byte* source = bytes(from);
  LoopWork work{.into = static_cast<std::byte*>(into),
                .sources = &source,
                .operands = 1,
                .factor = {factor.real, factor.imaginary},
                .integer = factor.integer};
  run_loop(loop, work, count, parts_, written_bytes);
}

void Reduction::scale(void* into, const void* from, size_t count,
                      const PremulFactor& factor) const {
  convert(scale_, into, from, count, part_bytes_, factor);
}

void Reduction::widen(void* into, const void* from, size_t count) const {
  if (widen_ != nullptr) return convert(widen_, into, from, count, wide_part_bytes_, {});
  const size_t bytes = count * size_of(dtype_);
  base::copy_bytes(into, from, bytes, base::exceeds_last_level_cache(2 * bytes));
}

void Reduction::widen_scaled(void* into, const void* from, size_t count,
                             const PremulFactor& factor) const {
  convert(widen_scaled_, into, from, count, wide_part_bytes_, factor);
}

}  // namespace torch::comms::ctran
