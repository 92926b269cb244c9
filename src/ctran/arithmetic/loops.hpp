#pragma once

#include "ctran/arithmetic/operations.hpp"

// The table of loops of one instruction set.
namespace torch::comms::ctran {
namespace {

// kVectors vectors from element `at` on, or, if that is 0, the `rest` of elements of one: each
// source is read once, all before the store, so that the target may be one of them.
template <class In, class Out, class Op, class Finish, size_t kVectors>
TC_INLINE void combine_block(const Work& work, size_t at, size_t rest = 0) {
  using Read = typename In::Stored;
  using Written = typename Out::Stored;
  using V = Register<typename In::Lane>;
  constexpr size_t kRead = sizeof(ElementOf<Read>), kWritten = sizeof(ElementOf<Written>);
  const auto next = [rest](const std::byte* from) TC_TARGET {
    return In::decode(kVectors == 0 ? load_some<Read>(from, rest * kRead) : load<Read>(from));
  };
  constexpr size_t kCount = kVectors == 0 ? 1 : kVectors;
  V result[kCount];
  for (size_t i = 0; i < kCount; ++i)
    result[i] = next(work.sources[0] + at * kRead + i * sizeof(Read));
  for (size_t operand = 1; operand < work.operands; ++operand) {
    const std::byte* source = work.sources[operand] + at * kRead;
    for (size_t i = 0; i < kCount; ++i)
      result[i] = Op::combine(result[i], next(source + i * sizeof(Read)));
  }
  std::byte* into = work.into + at * kWritten;
  for (size_t i = 0; i < kCount; ++i) {
    const Written stored = Out::encode(Finish::finish(result[i], work));
    if (kVectors == 0)
      store_some(into, stored, rest * kWritten);
    else if (work.stream)
      stream(into + i * sizeof(Written), stored);
    else
      store(into + i * sizeof(Written), stored);
  }
}

template <class In, class Out, class Op, class Finish>
TC_TARGET void run(const Work& work) {
  static_assert(std::is_same_v<typename In::Lane, typename Out::Lane>);
  constexpr size_t kLanes = kLanesFor<typename In::Lane>, kVectors = 4;
  size_t at = work.begin;
  for (; work.end - at >= kVectors * kLanes; at += kVectors * kLanes)
    combine_block<In, Out, Op, Finish, kVectors>(work, at);
  for (; work.end - at >= kLanes; at += kLanes) combine_block<In, Out, Op, Finish, 1>(work, at);
  if (at != work.end) combine_block<In, Out, Op, Finish, 0>(work, at, work.end - at);
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
  table.reduce[index(dtype)][index(ReduceOp::kAverage)] = run<Narrow, Narrow, Sum, Divide<Narrow>>;
  table.settle[index(dtype)][index(ReduceOp::kAverage)] = run<F, Narrow, Sum, Divide<Narrow>>;
  table.widen[index(dtype)] = run<Narrow, F, Sum, AsIs>;
}

// Computed in Wide, which is F itself or float.
template <class F, class Wide>
constexpr void add_float(Kernels& table, Dtype dtype) {
  auto& reduce = table.reduce[index(dtype)];
  auto& settle = table.settle[index(dtype)];
  reduce[index(ReduceOp::kSum)] = run<F, F, Sum, Divide<F>>;
  reduce[index(ReduceOp::kProduct)] = run<F, F, Product, AsIs>;
  settle[index(ReduceOp::kSum)] = run<Wide, F, Sum, Divide<F>>;
  settle[index(ReduceOp::kProduct)] = run<Wide, F, Product, AsIs>;
  table.widen[index(dtype)] = run<F, Wide, Sum, AsIs>;
  table.widen_scaled[index(dtype)] = run<F, Wide, Sum, Scale>;
  table.scale[index(dtype)] = run<F, F, Sum, Scale>;
  add_order<F>(table, dtype);
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
  add_float<BFloat16, Plain<float>>(table, Dtype::kBFloat16);
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
