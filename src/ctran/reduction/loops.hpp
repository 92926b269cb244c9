#pragma once

#include "ctran/reduction/operations.hpp"

// Implements the loops of one instruction set, and their table.
namespace torch::comms::ctran {
namespace {

// Reduces vectors from element `at` on. Each source is read once, before the store, so the target
// may be one of the sources. The code expands each index into its own expression instead of a loop:
// then every compiler keeps the results in registers.
template <class In, class Out, class Op, class Finish, size_t... kIndex>
TC_INLINE void combine_vectors(const LoopWork& work, size_t at, std::index_sequence<kIndex...>) {
  using Read = typename In::Stored;
  using Written = typename Out::Stored;
  const size_t from = at * sizeof(ElementOf<Read>);
  Register<typename In::Lane> result[] = {
      In::decode(load<Read>(work.sources[0] + from + kIndex * sizeof(Read)))...};
  for (size_t operand = 1; operand < work.operands; ++operand) {
    const std::byte* source = work.sources[operand] + from;
    ((result[kIndex] =
          Op::combine(result[kIndex], In::decode(load<Read>(source + kIndex * sizeof(Read))))),
     ...);
  }
  ((result[kIndex] = Finish::finish(result[kIndex], work)), ...);
  std::byte* into = work.into + at * sizeof(ElementOf<Written>);
  if (work.is_non_temporal)
    (store_non_temporal(into + kIndex * sizeof(Written), Out::encode(result[kIndex])), ...);
  else
    (store(into + kIndex * sizeof(Written), Out::encode(result[kIndex])), ...);
}

// Reduces the last `rest` elements, which are fewer than a vector.
template <class In, class Out, class Op, class Finish>
TC_INLINE void combine_rest(const LoopWork& work, size_t at, size_t rest) {
  using Read = typename In::Stored;
  using Written = typename Out::Stored;
  constexpr size_t kRead = sizeof(ElementOf<Read>), kWritten = sizeof(ElementOf<Written>);
  auto result = In::decode(load_some<Read>(work.sources[0] + at * kRead, rest * kRead));
  for (size_t operand = 1; operand < work.operands; ++operand)
    result = Op::combine(
        result, In::decode(load_some<Read>(work.sources[operand] + at * kRead, rest * kRead)));
  store_some<Written>(work.into + at * kWritten, Out::encode(Finish::finish(result, work)),
                      rest * kWritten);
}

template <class In, class Out, class Op, class Finish>
TC_TARGET void run(const LoopWork& work) {
  static_assert(std::is_same_v<typename In::Lane, typename Out::Lane>);
  constexpr size_t kLanes = kLanesFor<typename In::Lane>, kVectors = 4;
  const size_t end = work.end;
  size_t at = work.begin;
  for (; end - at >= kVectors * kLanes; at += kVectors * kLanes)
    combine_vectors<In, Out, Op, Finish>(work, at, std::make_index_sequence<kVectors>{});
  for (; end - at >= kLanes; at += kLanes)
    combine_vectors<In, Out, Op, Finish>(work, at, std::make_index_sequence<1>{});
  if (at != end) combine_rest<In, Out, Op, Finish>(work, at, end - at);
  if (work.is_non_temporal) fence_non_temporal();
}

constexpr size_t index(Dtype dtype) { return static_cast<size_t>(dtype); }
constexpr size_t index(ReduceOpCode op) { return static_cast<size_t>(op); }

template <class F>
constexpr void add_order(LoopTable& table, Dtype dtype) {
  table.reduce[index(dtype)][index(ReduceOpCode::kMin)] = run<F, F, VectorMin, VectorIdentity>;
  table.reduce[index(dtype)][index(ReduceOpCode::kMax)] = run<F, F, VectorMax, VectorIdentity>;
}

// Sums, products and bit operations of integers use the unsigned type of the same size.
template <class T>
constexpr void add_unsigned(LoopTable& table, Dtype dtype) {
  using F = PlainFormat<T>;
  auto& reduce = table.reduce[index(dtype)];
  reduce[index(ReduceOpCode::kSum)] = run<F, F, VectorSum, VectorIdentity>;
  reduce[index(ReduceOpCode::kProduct)] = run<F, F, VectorProduct, VectorIdentity>;
  table.scale[index(dtype)] = run<F, F, VectorSum, VectorScale>;
  add_order<F>(table, dtype);
}

constexpr void add_bits(LoopTable& table) {
  using F = PlainFormat<uint8_t>;
  auto& reduce = table.reduce[index(Dtype::kUInt8)];
  reduce[index(ReduceOpCode::kBitAnd)] = run<F, F, VectorBitAnd, VectorIdentity>;
  reduce[index(ReduceOpCode::kBitOr)] = run<F, F, VectorBitOr, VectorIdentity>;
  reduce[index(ReduceOpCode::kBitXor)] = run<F, F, VectorBitXor, VectorIdentity>;
}

template <class T, class Wide>
constexpr void add_average(LoopTable& table, Dtype dtype) {
  using Narrow =
      std::conditional_t<sizeof(T) == sizeof(Wide), PlainFormat<T>, WideIntegerFormat<T, Wide>>;
  using F = PlainFormat<Wide>;
  table.reduce[index(dtype)][index(ReduceOpCode::kAverage)] =
      run<Narrow, Narrow, VectorSum, VectorDivide<Narrow, sizeof(T) <= 2>>;
  table.finish[index(dtype)][index(ReduceOpCode::kAverage)] =
      run<F, Narrow, VectorSum, VectorDivide<Narrow>>;
  table.widen[index(dtype)] = run<Narrow, F, VectorSum, VectorIdentity>;
}

// Adds the loops of a floating-point format F, computed in Wide, which is F or float. Own is F for
// results of sums and products of F; Ordered is F for results that are one of the operands.
template <class F, class Wide, class Own = F, class Ordered = F>
constexpr void add_float(LoopTable& table, Dtype dtype) {
  auto& reduce = table.reduce[index(dtype)];
  auto& finish = table.finish[index(dtype)];
  reduce[index(ReduceOpCode::kSum)] = run<Own, Own, VectorSum, VectorDivide<F>>;
  reduce[index(ReduceOpCode::kProduct)] = run<Own, Own, VectorProduct, VectorIdentity>;
  finish[index(ReduceOpCode::kSum)] = run<Wide, F, VectorSum, VectorDivide<F>>;
  finish[index(ReduceOpCode::kProduct)] = run<Wide, F, VectorProduct, VectorIdentity>;
  table.widen[index(dtype)] = run<F, Wide, VectorSum, VectorIdentity>;
  table.widen_scaled[index(dtype)] = run<F, Wide, VectorSum, VectorScale>;
  table.scale[index(dtype)] = run<F, F, VectorSum, VectorScale>;
  add_order<Ordered>(table, dtype);
}

// Adds the loops that treat a complex number as a whole, not as two parts.
template <class F, class Wide>
constexpr void add_complex(LoopTable& table, Dtype dtype) {
  table.reduce[index(dtype)][index(ReduceOpCode::kProduct)] =
      run<F, F, VectorComplexProduct, VectorIdentity>;
  table.finish[index(dtype)][index(ReduceOpCode::kProduct)] =
      run<Wide, F, VectorComplexProduct, VectorIdentity>;
  table.widen_scaled[index(dtype)] = run<F, Wide, VectorSum, VectorComplexScale>;
  table.scale[index(dtype)] = run<F, F, VectorSum, VectorComplexScale>;
}

constexpr LoopTable make_loop_table() {
  LoopTable table{};
  add_bits(table);
  add_unsigned<uint8_t>(table, Dtype::kUInt8);
  add_unsigned<uint16_t>(table, Dtype::kUInt16);
  add_unsigned<uint32_t>(table, Dtype::kUInt32);
  add_unsigned<uint64_t>(table, Dtype::kUInt64);
  add_order<PlainFormat<int8_t>>(table, Dtype::kInt8);
  add_order<PlainFormat<int16_t>>(table, Dtype::kInt16);
  add_order<PlainFormat<int32_t>>(table, Dtype::kInt32);
  add_order<PlainFormat<int64_t>>(table, Dtype::kInt64);
  add_average<uint8_t, int32_t>(table, Dtype::kUInt8);
  add_average<uint16_t, int32_t>(table, Dtype::kUInt16);
  add_average<uint32_t, int64_t>(table, Dtype::kUInt32);
  add_average<uint64_t, uint64_t>(table, Dtype::kUInt64);
  add_average<int8_t, int32_t>(table, Dtype::kInt8);
  add_average<int16_t, int32_t>(table, Dtype::kInt16);
  add_average<int32_t, int64_t>(table, Dtype::kInt32);
  add_average<int64_t, int64_t>(table, Dtype::kInt64);
  add_float<PlainFormat<double>, PlainFormat<double>>(table, Dtype::kFloat64);
  add_float<PlainFormat<float>, PlainFormat<float>>(table, Dtype::kFloat32);
  add_float<Float16Format, PlainFormat<float>>(table, Dtype::kFloat16);
  add_float<BFloat16Format<BFloat16Source::kAny>, PlainFormat<float>,
            BFloat16Format<BFloat16Source::kNoLowNan>, BFloat16Format<BFloat16Source::kExact>>(
      table, Dtype::kBFloat16);
  add_float<Float8E5m2Format, PlainFormat<float>>(table, Dtype::kFloat8E5m2);
  add_float<Float8E4m3fnFormat, PlainFormat<float>>(table, Dtype::kFloat8E4m3fn);
  add_float<Float8E5m2fnuzFormat, PlainFormat<float>>(table, Dtype::kFloat8E5m2fnuz);
  add_float<Float8E4m3fnuzFormat, PlainFormat<float>>(table, Dtype::kFloat8E4m3fnuz);
  add_float<Float8E8m0fnuFormat, PlainFormat<float>>(table, Dtype::kFloat8E8m0fnu);
  add_complex<PlainFormat<double>, PlainFormat<double>>(table, Dtype::kComplex128);
  add_complex<PlainFormat<float>, PlainFormat<float>>(table, Dtype::kComplex64);
  add_complex<Float16Format, PlainFormat<float>>(table, Dtype::kComplex32);
  return table;
}

}  // namespace
}  // namespace torch::comms::ctran
