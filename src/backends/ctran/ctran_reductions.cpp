#include <ATen/EmptyTensor.h>

#include "backends/ctran/call_context.hpp"
#include "core/comm/operand_checks.hpp"
#include "core/options/dtype_name.hpp"

// The reductions of TorchCommCtran. ctran/arithmetic computes them.
namespace torch::comms {

using ctran::EngineCall;
using ctran::OperandBuffers;
using schedule::Blocks;
using Kind = schedule::Operation;

namespace {

// The values of torch's and the public API's enums equal those of ctran's enums, so that a cast
// converts them.
constexpr bool same(at::ScalarType a, ctran::Dtype b) {
  return static_cast<int>(a) == static_cast<int>(b);
}
constexpr bool same(RedOpType a, ctran::ReduceOpCode b) {
  return static_cast<int>(a) == static_cast<int>(b);
}
static_assert(same(at::kByte, ctran::Dtype::kUInt8) && same(at::kChar, ctran::Dtype::kInt8) &&
              same(at::kShort, ctran::Dtype::kInt16) && same(at::kInt, ctran::Dtype::kInt32) &&
              same(at::kLong, ctran::Dtype::kInt64) && same(at::kUInt16, ctran::Dtype::kUInt16) &&
              same(at::kUInt32, ctran::Dtype::kUInt32) && same(at::kUInt64, ctran::Dtype::kUInt64));
static_assert(same(at::kHalf, ctran::Dtype::kFloat16) && same(at::kFloat, ctran::Dtype::kFloat32) &&
              same(at::kDouble, ctran::Dtype::kFloat64) &&
              same(at::kBFloat16, ctran::Dtype::kBFloat16) && same(at::kBool, ctran::Dtype::kBool));
static_assert(same(at::kComplexHalf, ctran::Dtype::kComplex32) &&
              same(at::kComplexFloat, ctran::Dtype::kComplex64) &&
              same(at::kComplexDouble, ctran::Dtype::kComplex128));
static_assert(same(at::kFloat8_e5m2, ctran::Dtype::kFloat8E5m2) &&
              same(at::kFloat8_e4m3fn, ctran::Dtype::kFloat8E4m3fn) &&
              same(at::kFloat8_e5m2fnuz, ctran::Dtype::kFloat8E5m2fnuz) &&
              same(at::kFloat8_e4m3fnuz, ctran::Dtype::kFloat8E4m3fnuz) &&
              same(at::kFloat8_e8m0fnu, ctran::Dtype::kFloat8E8m0fnu));
static_assert(same(RedOpType::SUM, ctran::ReduceOpCode::kSum) &&
              same(RedOpType::PRODUCT, ctran::ReduceOpCode::kProduct) &&
              same(RedOpType::MIN, ctran::ReduceOpCode::kMin) &&
              same(RedOpType::MAX, ctran::ReduceOpCode::kMax) &&
              same(RedOpType::BAND, ctran::ReduceOpCode::kBitAnd) &&
              same(RedOpType::BOR, ctran::ReduceOpCode::kBitOr) &&
              same(RedOpType::BXOR, ctran::ReduceOpCode::kBitXor) &&
              same(RedOpType::PREMUL_SUM, ctran::ReduceOpCode::kPremulSum) &&
              same(RedOpType::AVG, ctran::ReduceOpCode::kAverage));

// Returns: the factor of PREMUL_SUM as one number.
ctran::PremulFactor number_of(const PreMulSumFactorT& factor, at::ScalarType dtype) {
  if (const auto* number = std::get_if<double>(&factor)) return {.real = *number};
  const PlainDispatchGuard plain;
  const auto& tensor = std::get<at::Tensor>(factor);
  if (c10::isIntegralType(dtype, /*includeBool=*/false))
    return {.integer = static_cast<uint64_t>(tensor.to(at::kLong).item<int64_t>())};
  const auto value = tensor.to(at::kComplexDouble).item<c10::complex<double>>();
  return {.real = value.real(), .imaginary = value.imag()};
}

bool is_number(const PreMulSumFactorT& factor) {
  const auto* tensor = std::get_if<at::Tensor>(&factor);
  return tensor == nullptr || tensor->numel() == 1;
}

// Replaces the input by its product with one factor per element, in new memory, rounded to the
// dtype.
void multiply(OperandBuffers& operands, const at::Tensor& factors, at::ScalarType dtype) {
  const PlainDispatchGuard plain;
  const auto converted = factors.to(dtype).resolve_conj().resolve_neg().contiguous();
  const ctran::Reduction product(static_cast<ctran::Dtype>(dtype), ctran::ReduceOpCode::kProduct);
  const size_t element = c10::elementSize(dtype);
  at::Tensor scaled(at::detail::empty_cpu({converted.numel()}, dtype));
  auto* into = static_cast<std::byte*>(scaled.mutable_data_ptr());
  const auto* multiplier = ctran::bytes_of(converted).data();
  size_t done = 0;
  for (const auto part : operands.input()) {
    product.combine(into + done, part.data(), multiplier + done, part.size() / element);
    done += part.size();
  }
  operands.replace_input(std::move(scaled), {into, done});
}

}  // namespace

WorkPtr TorchCommCtran::run_reduction(const ctran::CallInfo& now, const OperationOptions& options,
                                      bool async_op, EngineCall& call, const at::Tensor& like,
                                      int64_t count, const ReduceOp& op, OperandBuffers& operands) {
  const auto dtype = like.scalar_type();
  call.dtype = static_cast<uint8_t>(dtype);
  call.element_bytes = static_cast<uint32_t>(like.element_size());
  call.op = static_cast<ctran::ReduceOpCode>(op.type());
  const auto known = static_cast<ctran::Dtype>(dtype);
  if (ctran::size_of(known) == 0 || !ctran::Reduction::is_defined(known, call.op))
    throw CommError(Errc::kInvalidArgument, "reduction " + std::string(toString(op.type())) +
                                                " is not defined for dtype " + dtype_name(dtype));
  if (const auto* factor = op.factor()) {
    require_valid_factor(*factor, dtype, count);
    // An input that is multiplied here is reduced as PREMUL_SUM by one, so that the ranks still
    // agree on the operation.
    if (is_number(*factor))
      call.factor = number_of(*factor, dtype);
    else
      multiply(operands, std::get<at::Tensor>(*factor), dtype);
  }
  return submit(now, options, async_op, call, operands);
}

WorkPtr TorchCommCtran::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                                   const AllReduceOptions& options) {
  const auto now = begin_call(OpName::all_reduce, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.read(tensor);
    operands.write(tensor);
    EngineCall call{
        .name = {}, .operation = Kind::kAllReduce, .blocks = Blocks::even(tensor.numel(), size_)};
    return run_reduction(now, options, async_op, call, tensor, tensor.numel(), op, operands);
  });
}

WorkPtr TorchCommCtran::reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                               const ReduceOptions& options) {
  const auto now = begin_call(OpName::reduce, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.read(tensor);
    if (rank_ == root) operands.write(tensor);
    EngineCall call{.name = {},
                    .operation = Kind::kReduce,
                    .root = root,
                    .blocks = Blocks::even(tensor.numel(), size_)};
    return run_reduction(now, options, async_op, call, tensor, tensor.numel(), op, operands);
  });
}

WorkPtr TorchCommCtran::reduce_scatter(at::Tensor& output, const Tensors& input, const ReduceOp& op,
                                       bool async_op, const ReduceScatterOptions& options) {
  const auto now = begin_call(OpName::reduce_scatter, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.read_all(input);
    operands.write(output);
    operands.separate_but_slots(static_cast<size_t>(rank_), 0);
    EngineCall call{.name = {},
                    .operation = Kind::kReduceScatter,
                    .blocks = Blocks::equal(output.numel(), size_)};
    return run_reduction(now, options, async_op, call, output, output.numel() * size_, op,
                         operands);
  });
}

WorkPtr TorchCommCtran::reduce_scatter_v(at::Tensor& output, const Tensors& input,
                                         const ReduceOp& op, bool async_op,
                                         const ReduceScatterOptions& options) {
  const auto now = begin_call(OpName::reduce_scatter_v, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.read_all(input);
    operands.write(output);
    operands.separate_but_slots(static_cast<size_t>(rank_), 0);
    c10::SmallVector<int64_t, 17> offsets{0};
    for (const auto& tensor : input) offsets.push_back(offsets.back() + tensor.numel());
    EngineCall call{.name = {},
                    .operation = Kind::kReduceScatter,
                    .blocks = Blocks::from_offsets({offsets.data(), offsets.size()})};
    return run_reduction(now, options, async_op, call, output, offsets.back(), op, operands);
  });
}

WorkPtr TorchCommCtran::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                              const ReduceOp& op, bool async_op,
                                              const ReduceScatterSingleOptions& options) {
  const auto now = begin_call(OpName::reduce_scatter_single, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.read(input);
    operands.write(output);
    operands.separate_but_parts(ctran::part_of(operands.input()[0], rank_, size_),
                                operands.output()[0]);
    EngineCall call{.name = {},
                    .operation = Kind::kReduceScatter,
                    .blocks = Blocks::equal(output.numel(), size_)};
    return run_reduction(now, options, async_op, call, output, input.numel(), op, operands);
  });
}

}  // namespace torch::comms
