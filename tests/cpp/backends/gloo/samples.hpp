#pragma once

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torchcomms/types.hpp>

// Inputs that every rank can compute for every other, and what their reduction must be.
namespace torch::comms::gloo_test {

inline const std::vector<at::ScalarType> kFloats{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
inline const std::vector<at::ScalarType> kNarrow{at::kFloat8_e5m2, at::kFloat8_e4m3fn,
                                                 at::kFloat8_e5m2fnuz, at::kFloat8_e4m3fnuz};
inline const std::vector<at::ScalarType> kIntegers{
    at::kChar, at::kShort, at::kInt, at::kLong, at::kByte, at::kUInt16, at::kUInt32, at::kUInt64};
inline const std::vector<at::ScalarType> kComplex{at::kComplexFloat, at::kComplexDouble};
inline const std::vector<RedOpType> kReductions{RedOpType::SUM,  RedOpType::PRODUCT, RedOpType::MIN,
                                                RedOpType::MAX,  RedOpType::BAND,    RedOpType::BOR,
                                                RedOpType::BXOR, RedOpType::AVG};

inline std::vector<at::ScalarType> reducible() {
  std::vector<at::ScalarType> all{at::kBool};
  for (const auto* some : {&kFloats, &kNarrow, &kIntegers, &kComplex})
    all.insert(all.end(), some->begin(), some->end());
  return all;
}

inline bool is_unsigned(at::ScalarType dtype) {
  return dtype == at::kByte || dtype == at::kUInt16 || dtype == at::kUInt32 || dtype == at::kUInt64;
}
inline bool is_integer(at::ScalarType dtype) { return c10::isIntegralType(dtype, false); }
inline bool is_bitwise(RedOpType op) {
  return op == RedOpType::BAND || op == RedOpType::BOR || op == RedOpType::BXOR;
}
inline bool is_defined(at::ScalarType dtype, RedOpType op) {
  if (is_bitwise(op)) return is_integer(dtype) || dtype == at::kBool;
  if (op == RedOpType::MIN || op == RedOpType::MAX) return !c10::isComplexType(dtype);
  return true;
}

// Small whole numbers, so that every dtype holds the sums exactly; truth values for bool.
inline at::Tensor sample(int rank, at::ScalarType dtype, at::IntArrayRef shape) {
  const auto index = at::arange(c10::multiply_integers(shape), at::kLong);
  auto raw = (index * 7 + rank * 5) % 4;
  if (dtype == at::kBool) return ((index + rank * (index % 3)) % 3 == 0).reshape(shape);
  if (!is_unsigned(dtype)) raw = raw - 2;
  if (c10::isComplexType(dtype))
    return at::complex(raw.to(at::kDouble), ((index + rank) % 3).to(at::kDouble))
        .to(dtype)
        .reshape(shape);
  return raw.to(dtype).reshape(shape);
}

// In int64, double or complex double, over all ranks' samples; exact for those.
inline at::Tensor reference(RedOpType op, const std::vector<at::Tensor>& inputs) {
  const auto dtype = inputs[0].scalar_type();
  const auto wide = c10::isComplexType(dtype)                 ? at::kComplexDouble
                    : is_integer(dtype) || dtype == at::kBool ? at::kLong
                                                              : at::kDouble;
  auto total = inputs[0].to(wide);
  for (size_t rank = 1; rank < inputs.size(); ++rank) {
    const auto next = inputs[rank].to(wide);
    switch (op) {
      case RedOpType::PRODUCT:
        total = total * next;
        break;
      case RedOpType::MIN:
        total = at::minimum(total, next);
        break;
      case RedOpType::MAX:
        total = at::maximum(total, next);
        break;
      case RedOpType::BAND:
        total = at::bitwise_and(total, next);
        break;
      case RedOpType::BOR:
        total = at::bitwise_or(total, next);
        break;
      case RedOpType::BXOR:
        total = at::bitwise_xor(total, next);
        break;
      default:
        total = total + next;
    }
  }
  const auto size = static_cast<int64_t>(inputs.size());
  if (dtype == at::kBool) {
    // "any" for SUM, "all" for AVG.
    if (op == RedOpType::AVG) return total == size;
    return total != 0;
  }
  if (op == RedOpType::AVG)
    total = is_integer(dtype) ? at::div(total, size, "trunc") : total / size;
  return total.to(dtype);
}

inline at::Tensor raw(const at::Tensor& tensor) {
  return at::from_blob(tensor.contiguous().data_ptr(), {static_cast<int64_t>(tensor.nbytes())},
                       at::kByte)
      .clone();
}
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && at::equal(raw(a), raw(b));
}

inline std::string label(at::ScalarType dtype, RedOpType op) {
  return std::string(toString(op)) + " of " + c10::toString(dtype);
}

}  // namespace torch::comms::gloo_test
