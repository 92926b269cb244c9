#include "ctran/arithmetic/reduction.hpp"

#include <algorithm>
#include <string>

#include <torchcomms/base/error.hpp>

#include "base/cache_info.hpp"
#include "base/streaming_copy.hpp"
#include "ctran/arithmetic/kernel.hpp"

namespace torch::comms::ctran {
namespace {

enum class Kind : uint8_t { kFloat, kSmallFloat, kInteger, kBool, kComplex };

Kind kind_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
    case Dtype::kFloat64:
      return Kind::kFloat;
    case Dtype::kFloat16:
    case Dtype::kBFloat16:
    case Dtype::kFloat8E5m2:
    case Dtype::kFloat8E4m3fn:
    case Dtype::kFloat8E5m2fnuz:
    case Dtype::kFloat8E4m3fnuz:
    case Dtype::kFloat8E8m0fnu:
      return Kind::kSmallFloat;
    case Dtype::kComplex32:
    case Dtype::kComplex64:
    case Dtype::kComplex128:
      return Kind::kComplex;
    case Dtype::kBool:
      return Kind::kBool;
    default:
      return Kind::kInteger;
  }
}

bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
}
bool is_order(ReduceOp op) { return op == ReduceOp::kMin || op == ReduceOp::kMax; }

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

Dtype accumulator_of(Dtype dtype, ReduceOp op) {
  if (dtype == Dtype::kComplex32) return Dtype::kComplex64;
  const Kind kind = kind_of(dtype);
  if (kind == Kind::kSmallFloat && !is_order(op)) return Dtype::kFloat32;
  if (kind != Kind::kInteger || op != ReduceOp::kAverage || size_of(dtype) == 8) return dtype;
  return size_of(dtype) == 4 ? Dtype::kInt64 : Dtype::kInt32;
}

// "any" and "all" of truth values, which are bytes of 0 and 1.
ReduceOp op_of_bool(ReduceOp op) {
  if (op == ReduceOp::kBitXor) return op;
  const bool any = op == ReduceOp::kSum || op == ReduceOp::kMax || op == ReduceOp::kBitOr;
  return any ? ReduceOp::kMax : ReduceOp::kMin;
}

// The table's cell for combining elements of `dtype`.
struct Cell {
  Dtype dtype;
  ReduceOp op;
  uint8_t parts;
};
Cell cell_of(Dtype dtype, ReduceOp op) {
  const Kind kind = kind_of(dtype);
  if (kind == Kind::kBool) return {Dtype::kUInt8, op_of_bool(op), 1};
  if (is_bitwise(op)) return {Dtype::kUInt8, op, static_cast<uint8_t>(size_of(dtype))};
  const bool adds = op == ReduceOp::kAverage || op == ReduceOp::kPremulSum;
  const ReduceOp combined = adds ? ReduceOp::kSum : op;
  if (kind == Kind::kComplex)
    return {combined == ReduceOp::kProduct ? dtype : part_of(dtype), combined, 2};
  return {kind == Kind::kInteger && !is_order(op) ? unsigned_of(dtype) : dtype, combined, 1};
}

Kernel at(const Kernels::ByDtype<Kernel>& row, Dtype dtype) {
  return row[static_cast<size_t>(dtype)];
}
Kernel at(const Kernels::ByDtype<std::array<Kernel, kReduceOpNumbers>>& table, Dtype dtype,
          ReduceOp op) {
  return table[static_cast<size_t>(dtype)][static_cast<size_t>(op)];
}

const std::byte* bytes(const void* memory) { return static_cast<const std::byte*>(memory); }

}  // namespace

bool Reduction::is_defined(Dtype dtype, ReduceOp op) noexcept {
  if (size_of(dtype) == 0 || static_cast<size_t>(op) >= kReduceOpNumbers) return false;
  const Kind kind = kind_of(dtype);
  if (is_bitwise(op)) return kind == Kind::kInteger || kind == Kind::kBool;
  if (is_order(op)) return kind != Kind::kComplex;
  return op != ReduceOp::kPremulSum || kind != Kind::kBool;
}

Reduction::Reduction(Dtype dtype, ReduceOp op, Level level)
    : dtype_(dtype), accumulator_(accumulator_of(dtype, op)) {
  if (!is_defined(dtype, op))
    throw CommError(Errc::kInvalidArgument, "reduction " + std::string(name_of(op)) +
                                                " is not defined for dtype " +
                                                std::string(name_of(dtype)));
  if (std::ranges::find(levels(), level) == levels().end())
    throw CommError(Errc::kUnsupported, "this machine has no " + std::string(name_of(level)));

  const Kernels& table = kernels_of(level);
  const Cell cell = cell_of(dtype, op), wide = cell_of(accumulator_, op);
  const bool integer_average = op == ReduceOp::kAverage && kind_of(dtype) == Kind::kInteger;
  const bool converts = accumulator_ != dtype_;
  const Dtype part = part_of(dtype_);
  parts_ = cell.parts;
  divides_ = op == ReduceOp::kAverage && kind_of(dtype) != Kind::kBool;

  combine_ = at(table.reduce, cell.dtype, cell.op);
  combine_all_ = integer_average ? at(table.reduce, dtype, op) : combine_;
  combine_wide_ = at(table.reduce, wide.dtype, wide.op);
  if (!converts)
    settle_ = combine_all_;
  else if (integer_average)
    settle_ = at(table.settle, dtype, op);
  else
    settle_ = at(table.settle, cell.dtype, cell.op);
  if (converts) widen_ = at(table.widen, part);
  if (op == ReduceOp::kPremulSum) {
    const Dtype scaled = kind_of(dtype) == Kind::kInteger ? cell.dtype : dtype;
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
  launch(combine_, work, count, parts_, part_bytes_);
}

void Reduction::combine_wide(void* into, const void* left, const void* right,
                             size_t count) const noexcept {
  const std::byte* operands[] = {bytes(left), bytes(right)};
  LoopWork work{.into = static_cast<std::byte*>(into), .sources = operands, .operands = 2};
  launch(combine_wide_, work, count, parts_, wide_part_bytes_);
}

void Reduction::reduce(Loop loop, void* into, std::span<const void* const> operands, size_t count,
                       uint32_t ranks) const {
  TC_CHECK(!operands.empty() && operands.size() <= kMostOperands);
  TC_CHECK(ranks != 0 || !divides_);
  const std::byte* sources[kMostOperands];
  std::ranges::transform(operands, sources, bytes);
  LoopWork work{.into = static_cast<std::byte*>(into),
                .sources = sources,
                .operands = operands.size(),
                .divisor = divides_ ? ranks : 1};
  launch(loop, work, count, parts_, part_bytes_);
}

void Reduction::combine_all(void* into, std::span<const void* const> operands, size_t count,
                            uint32_t ranks) const {
  reduce(combine_all_, into, operands, count, ranks);
}

void Reduction::settle(void* into, std::span<const void* const> operands, size_t count,
                       uint32_t ranks) const {
  reduce(settle_, into, operands, count, ranks);
}

void Reduction::convert(Loop loop, void* into, const void* from, size_t count, size_t written_bytes,
                        const Factor& factor) const {
  TC_CHECK(loop != nullptr);  // only PREMUL_SUM scales
  const std::byte* source = bytes(from);
  LoopWork work{.into = static_cast<std::byte*>(into),
                .sources = &source,
                .operands = 1,
                .factor = {factor.real, factor.imaginary},
                .integer = factor.integer};
  launch(loop, work, count, parts_, written_bytes);
}

void Reduction::scale(void* into, const void* from, size_t count, const Factor& factor) const {
  convert(scale_, into, from, count, part_bytes_, factor);
}

void Reduction::widen(void* into, const void* from, size_t count) const {
  if (widen_ != nullptr) return convert(widen_, into, from, count, wide_part_bytes_, {});
  const size_t bytes = count * size_of(dtype_);
  base::copy_bytes(into, from, bytes, base::exceeds_last_level_cache(2 * bytes));
}

void Reduction::widen_scaled(void* into, const void* from, size_t count,
                             const Factor& factor) const {
  convert(widen_scaled_, into, from, count, wide_part_bytes_, factor);
}

}  // namespace torch::comms::ctran
