#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// Dtypes and reduction operations as numbers, which base::OpRecord uses, too.
namespace torch::comms::ctran {

// The dtypes with arithmetic. The values are those of c10::ScalarType.
enum class Dtype : uint8_t {
  kUInt8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kComplex32 = 8,
  kComplex64 = 9,
  kComplex128 = 10,
  kBool = 11,
  kBFloat16 = 15,
  kFloat8E5m2 = 23,
  kFloat8E4m3fn = 24,
  kFloat8E5m2fnuz = 25,
  kFloat8E4m3fnuz = 26,
  kUInt16 = 27,
  kUInt32 = 28,
  kUInt64 = 29,
  kFloat8E8m0fnu = 44,
};
inline constexpr size_t kDtypeNumbers = 45;

// Reduction operations. The values are those of RedOpType.
enum class ReduceOpCode : uint8_t {
  kSum = 0,
  kProduct = 1,
  kMin = 2,
  kMax = 3,
  kBitAnd = 4,
  kBitOr = 5,
  kBitXor = 6,
  kPremulSum = 7,
  kAverage = 8,
};
inline constexpr size_t kReduceOpCodes = 9;

// Returns: bytes of an element; 0 for a dtype without arithmetic.
size_t size_of(Dtype dtype) noexcept;

// Returns: torch's name ("bfloat16"), or "unknown".
std::string_view name_of(Dtype dtype) noexcept;
std::string_view name_of(ReduceOpCode op) noexcept;

}  // namespace torch::comms::ctran
