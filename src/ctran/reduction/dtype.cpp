#include "ctran/reduction/dtype.hpp"

namespace torch::comms::ctran {
namespace {

struct ArithmeticDtype {
  Dtype dtype;
  uint8_t bytes;
  std::string_view name;
};

constexpr ArithmeticDtype kRows[] = {
    {Dtype::kUInt8, 1, "uint8"},
    {Dtype::kInt8, 1, "int8"},
    {Dtype::kInt16, 2, "int16"},
    {Dtype::kInt32, 4, "int32"},
    {Dtype::kInt64, 8, "int64"},
    {Dtype::kFloat16, 2, "float16"},
    {Dtype::kFloat32, 4, "float32"},
    {Dtype::kFloat64, 8, "float64"},
    {Dtype::kComplex32, 4, "complex32"},
    {Dtype::kComplex64, 8, "complex64"},
    {Dtype::kComplex128, 16, "complex128"},
    {Dtype::kBool, 1, "bool"},
    {Dtype::kBFloat16, 2, "bfloat16"},
    {Dtype::kFloat8E5m2, 1, "float8_e5m2"},
    {Dtype::kFloat8E4m3fn, 1, "float8_e4m3fn"},
    {Dtype::kFloat8E5m2fnuz, 1, "float8_e5m2fnuz"},
    {Dtype::kFloat8E4m3fnuz, 1, "float8_e4m3fnuz"},
    {Dtype::kUInt16, 2, "uint16"},
    {Dtype::kUInt32, 4, "uint32"},
    {Dtype::kUInt64, 8, "uint64"},
    {Dtype::kFloat8E8m0fnu, 1, "float8_e8m0fnu"},
};

constexpr std::string_view kOps[] = {"SUM", "PRODUCT", "MIN",        "MAX", "BAND",
                                     "BOR", "BXOR",    "PREMUL_SUM", "AVG"};

const ArithmeticDtype* find(Dtype dtype) {
  for (const auto& row : kRows)
    if (row.dtype == dtype) return &row;
  return nullptr;
}

}  // namespace

size_t size_of(Dtype dtype) noexcept {
  const ArithmeticDtype* row = find(dtype);
  return row == nullptr ? 0 : row->bytes;
}

std::string_view name_of(Dtype dtype) noexcept {
  const ArithmeticDtype* row = find(dtype);
  return row == nullptr ? "unknown" : row->name;
}

std::string_view name_of(ReduceOpCode op) noexcept {
  const auto number = static_cast<size_t>(op);
  return number < kReduceOpCodes ? kOps[number] : "unknown";
}

}  // namespace torch::comms::ctran
