#include "standin/arithmetic.hpp"

#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace torch::comms::standin {
namespace {

// body(T{}) with the type of `dtype`.
template <class Body>
auto with_type(DataType dtype, const Body& body) {
  switch (dtype) {
    case DataType::kInt8:
      return body(int8_t{});
    case DataType::kUint8:
      return body(uint8_t{});
    case DataType::kInt32:
      return body(int32_t{});
    case DataType::kUint32:
      return body(uint32_t{});
    case DataType::kInt64:
      return body(int64_t{});
    case DataType::kUint64:
      return body(uint64_t{});
    case DataType::kFloat16:
      return body(c10::Half{});
    case DataType::kBfloat16:
      return body(c10::BFloat16{});
    case DataType::kFloat8e4m3:
      return body(c10::Float8_e4m3fn{});
    case DataType::kFloat8e5m2:
      return body(c10::Float8_e5m2{});
    case DataType::kFloat64:
      return body(double{});
    case DataType::kFloat32:
      break;
  }
  return body(float{});
}

// Sums and products of integers wrap, without the undefined behaviour of signed ones.
template <class T>
auto wide(T value) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<uint64_t>(value);
  else
    return value;
}

template <class T>
bool is_nan(T value) {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return std::isnan(static_cast<double>(value));
}

// The smaller and the larger number drop a NaN, as C's fmin() and fmax() do.
template <class T>
T combined(T a, T b, RedOp op) {
  switch (op) {
    case RedOp::kProd:
      return static_cast<T>(wide(a) * wide(b));
    case RedOp::kMax:
      return a < b || is_nan(a) ? b : a;
    case RedOp::kMin:
      return b < a || is_nan(a) ? b : a;
    default:
      return static_cast<T>(wide(a) + wide(b));
  }
}

}  // namespace

size_t size_of(DataType dtype) {
  return with_type(dtype, [](auto zero) { return sizeof(zero); });
}

void combine(void* into, const void* from, size_t count, DataType dtype, RedOp op) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* a = static_cast<T*>(into);
    const auto* b = static_cast<const T*>(from);
    for (size_t i = 0; i < count; ++i) a[i] = combined(a[i], b[i], op);
  });
}

void scale(void* data, const void* factor, size_t count, DataType dtype) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* a = static_cast<T*>(data);
    const T by = *static_cast<const T*>(factor);
    for (size_t i = 0; i < count; ++i) a[i] = static_cast<T>(wide(a[i]) * wide(by));
  });
}

void divide(void* data, int parts, size_t count, DataType dtype) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* a = static_cast<T*>(data);
    for (size_t i = 0; i < count; ++i) a[i] = static_cast<T>(a[i] / static_cast<T>(parts));
  });
}

}  // namespace torch::comms::standin
