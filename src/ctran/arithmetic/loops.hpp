#pragma once

#include "ctran/arithmetic/operations.hpp"

// The table of loops of one instruction set.
namespace torch::comms::ctran {
namespace {

// Vectors from element `at` on. Each source is read once, all before the store, so that the target
// may be one of them. One expression for each index, not loops over them: then every compiler keeps
// the results in registers.
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
  if (work.stream)
    (stream(into + kIndex * sizeof(Written), Out::encode(result[kIndex])), ...);
  else
    (store(into + kIndex * sizeof(Written), Out::encode(result[kIndex])), ...);
}

// The last `rest` elements, which are less than a vector.
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
  if (work.stream) fence_stream();
}

constexpr size_t index(Dtype dtype) { return static_cast<size_t>(dtype); }
constexpr size_t index(ReduceOp op) { return static_cast<size_t>(op); }

template <class F>
constexpr void add_order(Kernels& table, Dtype dtype) {
  table.reduce[index(dtype)][index(ReduceOp::kMin)] = run<F, F, Min, AsIs>;
  table.reduce[index(dtype)][index(ReduceOp::kMax)] = run<F, F, Max, AsIs>;
}

// Sums, products and bits of integers are those of the unsigned type of the size.
template <class T>
constexpr void add_unsigned(Kernels& table, Dtype dtype) {
  using F = Plain<T>;
  auto& reduce = table.reduce[index(dtype)];
  reduce[index(ReduceOp::kSum)] = run<F, F, Sum, AsIs>;
  reduce[index(ReduceOp::kProduct)] = run<F, F, Product, AsIs>;
  table.scale[index(dtype)] = run<F, F, Sum, Scale>;
  add_order<F>(table, dtype);
}

constexpr void add_bits(Kernels& table) {
  using F = Plain<uint8_t>;
  auto& reduce = table.reduce[index(Dtype::kUInt8)];
  reduce[index(ReduceOp::kBitAnd)] = run<F, F, BitAnd, AsIs>;
  reduce[index(ReduceOp::kBitOr)] = run<F, F, BitOr, AsIs>;
  reduce[index(ReduceOp::kBitXor)] = run<F, F, BitXor, AsIs>;
}

template <class T, class Wide>
constexpr void add_average(Kernels& table, Dtype dtype) {
  using Narrow = std::conditional_t<sizeof(T) == sizeof(Wide), Plain<T>, WideInteger<T, Wide>>;
  using F = Plain<Wide>;
  table.reduce[index(dtype)][index(ReduceOp::kAverage)] =
      run<Narrow, Narrow, Sum, Divide<Narrow, sizeof(T) <= 2>>;
  table.settle[index(dtype)][index(ReduceOp::kAverage)] = run<F, Narrow, Sum, Divide<Narrow>>;
  table.widen[index(dtype)] = run<Narrow, F, Sum, AsIs>;
}

// Computed in Wide, which is F itself or float. Own and Ordered are F where the result comes from
// sums and products of F, and where it is one of the operands.
template <class F, class Wide, class Own = F, class Ordered = F>
constexpr void add_float(Kernels& table, Dtype dtype) {
  auto& reduce = table.reduce[index(dtype)];
  auto& settle = table.settle[index(dtype)];
  reduce[index(ReduceOp::kSum)] = run<Own, Own, Sum, Divide<F>>;
  reduce[index(ReduceOp::kProduct)] = run<Own, Own, Product, AsIs>;
  settle[index(ReduceOp::kSum)] = run<Wide, F, Sum, Divide<F>>;
  settle[index(ReduceOp::kProduct)] = run<Wide, F, Product, AsIs>;
  table.widen[index(dtype)] = run<F, Wide, Sum, AsIs>;
  table.widen_scaled[index(dtype)] = run<F, Wide, Sum, Scale>;
  table.scale[index(dtype)] = run<F, F, Sum, Scale>;
  add_order<Ordered>(table, dtype);
}

// What complex numbers have besides their parts.
template <class F, class Wide>
constexpr void add_complex(Kernels& table, Dtype dtype) {
  table.reduce[index(dtype)][index(ReduceOp::kProduct)] = run<F, F, ComplexProduct, AsIs>;
  table.settle[index(dtype)][index(ReduceOp::kProduct)] = run<Wide, F, ComplexProduct, AsIs>;
  table.widen_scaled[index(dtype)] = run<F, Wide, Sum, ComplexScale>;
  table.scale[index(dtype)] = run<F, F, Sum, ComplexScale>;
}

constexpr Kernels all_kernels() {
  Kernels table{};
  add_bits(table);
  add_unsigned<uint8_t>(table, Dtype::kUInt8);
  add_unsigned<uint16_t>(table, Dtype::kUInt16);
  add_unsigned<uint32_t>(table, Dtype::kUInt32);
  add_unsigned<uint64_t>(table, Dtype::kUInt64);
  add_order<Plain<int8_t>>(table, Dtype::kInt8);
  add_order<Plain<int16_t>>(table, Dtype::kInt16);
  add_order<Plain<int32_t>>(table, Dtype::kInt32);
  add_order<Plain<int64_t>>(table, Dtype::kInt64);
  add_average<uint8_t, int32_t>(table, Dtype::kUInt8);
  add_average<uint16_t, int32_t>(table, Dtype::kUInt16);
  add_average<uint32_t, int64_t>(table, Dtype::kUInt32);
  add_average<uint64_t, uint64_t>(table, Dtype::kUInt64);
  add_average<int8_t, int32_t>(table, Dtype::kInt8);
  add_average<int16_t, int32_t>(table, Dtype::kInt16);
  add_average<int32_t, int64_t>(table, Dtype::kInt32);
  add_average<int64_t, int64_t>(table, Dtype::kInt64);
  add_float<Plain<double>, Plain<double>>(table, Dtype::kFloat64);
  add_float<Plain<float>, Plain<float>>(table, Dtype::kFloat32);
  add_float<Float16, Plain<float>>(table, Dtype::kFloat16);
  add_float<BFloat16<Known::kNothing>, Plain<float>, BFloat16<Known::kNoLowNan>,
            BFloat16<Known::kExact>>(table, Dtype::kBFloat16);
  add_float<Float8E5m2, Plain<float>>(table, Dtype::kFloat8E5m2);
  add_float<Float8E4m3fn, Plain<float>>(table, Dtype::kFloat8E4m3fn);
  add_float<Float8E5m2fnuz, Plain<float>>(table, Dtype::kFloat8E5m2fnuz);
  add_float<Float8E4m3fnuz, Plain<float>>(table, Dtype::kFloat8E4m3fnuz);
  add_float<Float8E8m0fnu, Plain<float>>(table, Dtype::kFloat8E8m0fnu);
  add_complex<Plain<double>, Plain<double>>(table, Dtype::kComplex128);
  add_complex<Plain<float>, Plain<float>>(table, Dtype::kComplex64);
  add_complex<Float16, Plain<float>>(table, Dtype::kComplex32);
  return table;
}

}  // namespace
}  // namespace torch::comms::ctran
