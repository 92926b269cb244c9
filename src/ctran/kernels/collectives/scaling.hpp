#pragma once

#include "ctran/kernels/collectives/reducers.hpp"
#include "ctran/kernels/host/library.hpp"

// PREMUL_SUM: each rank multiplies its own elements and rounds them to the dtype; the rest is a
// sum.
namespace torch::comms::ctran::kernels {

struct KernelPremulFactor {
  double real, imaginary;
  uint64_t integer;
};

template <class Visitor>
TC_BOTH void visit_scaled(Dtype dtype, Visitor&& visit) {
  switch (dtype) {
    case Dtype::kUInt8:
    case Dtype::kInt8:
      return visit(Plain<uint8_t>{}, false);
    case Dtype::kUInt16:
    case Dtype::kInt16:
      return visit(Plain<uint16_t>{}, false);
    case Dtype::kUInt32:
    case Dtype::kInt32:
      return visit(Plain<uint32_t>{}, false);
    case Dtype::kUInt64:
    case Dtype::kInt64:
      return visit(Plain<uint64_t>{}, false);
    case Dtype::kFloat16:
    case Dtype::kComplex32:
      return visit(Float16{}, dtype == Dtype::kComplex32);
    case Dtype::kBFloat16:
      return visit(BFloat16{}, false);
    case Dtype::kFloat32:
    case Dtype::kComplex64:
      return visit(Plain<float>{}, dtype == Dtype::kComplex64);
    case Dtype::kFloat64:
    case Dtype::kComplex128:
      return visit(Plain<double>{}, dtype == Dtype::kComplex128);
    case Dtype::kFloat8E5m2:
      return visit(Float8E5m2{}, false);
    case Dtype::kFloat8E4m3fn:
      return visit(Float8E4m3fn{}, false);
    case Dtype::kFloat8E5m2fnuz:
      return visit(Float8E5m2fnuz{}, false);
    case Dtype::kFloat8E4m3fnuz:
      return visit(Float8E4m3fnuz{}, false);
    case Dtype::kFloat8E8m0fnu:
      return visit(Float8E8m0fnu{}, false);
    default:
      return;
  }
}

// Returns the factor from an element of the dtype, at any alignment.
TC_BOTH KernelPremulFactor factor_at(Dtype dtype, const void* element) {
  KernelPremulFactor factor{1, 0, 1};
  visit_scaled(dtype, [&](auto format, bool complex) {
    using F = decltype(format);
    typename F::Stored parts[2] = {};
    memcpy(parts, element, complex ? sizeof parts : sizeof parts[0]);
    factor.integer = static_cast<uint64_t>(parts[0]);
    factor.real = static_cast<double>(F::decode(parts[0]));
    factor.imaginary = static_cast<double>(F::decode(parts[1]));
    if (!complex) factor.imaginary = 0;
  });
  return factor;
}

// Returns the factor from a number; for integers it is truncated and keeps its sign.
TC_BOTH KernelPremulFactor factor_from(double value) {
  const auto integer =
      value < 0 ? static_cast<uint64_t>(static_cast<int64_t>(value)) : static_cast<uint64_t>(value);
  return {value, 0, integer};
}

TC_BOTH Vector16 scaled(Dtype dtype, const KernelPremulFactor& factor, Vector16 v) {
  visit_scaled(dtype, [&](auto format, bool complex) {
    using F = decltype(format);
    using Lane = typename F::Lane;
    constexpr int kLanes = static_cast<int>(16 / sizeof(typename F::Stored));
    typename F::Stored stored[kLanes];
    memcpy(stored, &v, sizeof v);
    if constexpr (std::is_integral_v<Lane>) {
      TC_UNROLL
      for (int i = 0; i < kLanes; ++i)
        stored[i] = Product::combine(stored[i], static_cast<Lane>(factor.integer));
    } else if (complex) {
      TC_UNROLL
      for (int i = 0; i < kLanes; i += 2) {
        Lane real = F::decode(stored[i]), imaginary = F::decode(stored[i + 1]);
        ComplexProduct<F>::multiply(real, imaginary, static_cast<Lane>(factor.real),
                                    static_cast<Lane>(factor.imaginary));
        stored[i] = F::encode(real), stored[i + 1] = F::encode(imaginary);
      }
    } else {
      TC_UNROLL
      for (int i = 0; i < kLanes; ++i)
        stored[i] = F::encode(F::decode(stored[i]) * static_cast<Lane>(factor.real));
    }
    memcpy(&v, stored, sizeof v);
  });
  return v;
}

}  // namespace torch::comms::ctran::kernels
