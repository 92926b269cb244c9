#include "vendor/blocking_adapter/sum_emulation.hpp"

#include <cstring>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "ctran/reduction/reduction.hpp"

namespace torch::comms::nccl::host {
namespace {

using ctran::Dtype;
using ctran::PremulFactor;
using ctran::ReduceOpCode;
using ctran::Reduction;

Dtype dtype_of(abi::DataType dtype) {
  switch (dtype) {
    case abi::DataType::kInt8:
      return Dtype::kInt8;
    case abi::DataType::kUint8:
      return Dtype::kUInt8;
    case abi::DataType::kInt32:
      return Dtype::kInt32;
    case abi::DataType::kUint32:
      return Dtype::kUInt32;
    case abi::DataType::kInt64:
      return Dtype::kInt64;
    case abi::DataType::kUint64:
      return Dtype::kUInt64;
    case abi::DataType::kFloat16:
      return Dtype::kFloat16;
    case abi::DataType::kFloat32:
      return Dtype::kFloat32;
    case abi::DataType::kFloat64:
      return Dtype::kFloat64;
    case abi::DataType::kBfloat16:
      return Dtype::kBFloat16;
    case abi::DataType::kFloat8e4m3:
      return Dtype::kFloat8E4m3fn;
    case abi::DataType::kFloat8e5m2:
      return Dtype::kFloat8E5m2;
  }
  TC_CHECK(false);
}

template <class T>
T read(const void* at) {
  T value{};
  std::memcpy(&value, at, sizeof value);
  return value;
}

PremulFactor factor_of(const Reduction& premul, const BlockingCommunicator::Element& element) {
  PremulFactor factor;
  switch (premul.dtype()) {
    case Dtype::kFloat64:
      factor.real = read<double>(element.data());
      return factor;
    case Dtype::kFloat32:
      factor.real = read<float>(element.data());
      return factor;
    case Dtype::kFloat16:
    case Dtype::kBFloat16: {
      float wide = 0;
      premul.widen(&wide, element.data(), 1);
      factor.real = wide;
      return factor;
    }
    default:
      // Integer products wrap, so bits above those of the element do not matter.
      factor.integer = 0;
      std::memcpy(&factor.integer, element.data(), ctran::size_of(premul.dtype()));
      return factor;
  }
}

}  // namespace

size_t size_of(abi::DataType dtype) { return ctran::size_of(dtype_of(dtype)); }

EmulatedReduction::EmulatedReduction(const BlockingCommunicator& member, abi::DataType dtype,
                                     abi::RedOp op)
    : dtype_(dtype), op_(op), ranks_(member.size()), factor_(member.factor_of(op)) {}

abi::Result EmulatedReduction::run(const void* input, size_t inputs, void* output, size_t outputs,
                                   const LibraryCall& call) const {
  if (factor_ != nullptr) {
    const Reduction premul(dtype_of(dtype_), ReduceOpCode::kPremulSum);
    std::vector<char> scaled(inputs * size_of(dtype_));
    premul.scale(scaled.data(), input, inputs, factor_of(premul, *factor_));
    return call(scaled.data(), abi::RedOp::kSum);
  }
  if (op_ != abi::RedOp::kAvg) return call(input, op_);
  const auto result = call(input, abi::RedOp::kSum);
  if (result == abi::kSuccess && outputs > 0) average(output, outputs);
  return result;
}

void EmulatedReduction::average(void* output, size_t count) const {
  const Reduction average(dtype_of(dtype_), ReduceOpCode::kAverage);
  const auto ranks = static_cast<uint32_t>(ranks_);
  const auto settle = [&](const void* sum) {
    average.finish(output, std::span(&sum, 1), count, ranks);
  };
  if (average.accumulator() == average.dtype()) return settle(output);
  std::vector<char> wide(count * ctran::size_of(average.accumulator()));
  average.widen(wide.data(), output, count);
  settle(wide.data());
}

}  // namespace torch::comms::nccl::host
