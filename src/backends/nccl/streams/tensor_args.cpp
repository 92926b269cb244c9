#include "backends/nccl/streams/tensor_args.hpp"

#include <cstring>
#include <optional>
#include <utility>

#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Half.h>
#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"
#include "core/comm/operand_checks.hpp"
#include "core/options/dtype_name.hpp"

namespace torch::comms::nccl {
namespace {

constexpr int kPremulSumSince = 21100, kFloat8Since = 22403;

// Returns: the library's dtype for a reduction. A bool is a byte that is 0 or 1.
std::optional<abi::DataType> reducible(at::ScalarType dtype) {
  switch (dtype) {
    case at::kChar:
      return abi::DataType::kInt8;
    case at::kByte:
    case at::kBool:
      return abi::DataType::kUint8;
    case at::kInt:
      return abi::DataType::kInt32;
    case at::kUInt32:
      return abi::DataType::kUint32;
    case at::kLong:
      return abi::DataType::kInt64;
    case at::kUInt64:
      return abi::DataType::kUint64;
    case at::kHalf:
      return abi::DataType::kFloat16;
    case at::kFloat:
      return abi::DataType::kFloat32;
    case at::kDouble:
      return abi::DataType::kFloat64;
    case at::kBFloat16:
      return abi::DataType::kBfloat16;
    default:
      return std::nullopt;
  }
}

// Returns: the dtype of 8-bit floating point numbers, which only some libraries and devices
// support.
std::optional<abi::DataType> float8(at::ScalarType dtype) {
  if (dtype == at::kFloat8_e4m3fn) return abi::DataType::kFloat8e4m3;
  if (dtype == at::kFloat8_e5m2) return abi::DataType::kFloat8e5m2;
  return std::nullopt;
}

abi::RedOp operation(RedOpType type, at::ScalarType dtype) {
  // A sum of bools is "any", a product or an average is "all": the result stays 0 or 1.
  const bool is_bool = dtype == at::kBool;
  switch (type) {
    case RedOpType::SUM:
    case RedOpType::PREMUL_SUM:
      return is_bool ? abi::RedOp::kMax : abi::RedOp::kSum;
    case RedOpType::PRODUCT:
      return is_bool ? abi::RedOp::kMin : abi::RedOp::kProd;
    case RedOpType::AVG:
      return is_bool ? abi::RedOp::kMin : abi::RedOp::kAvg;
    case RedOpType::MIN:
      return abi::RedOp::kMin;
    case RedOpType::MAX:
      return abi::RedOp::kMax;
    default:
      throw CommError(Errc::kUnsupported,
                      "the library has no reduction " + std::string(toString(type)));
  }
}

// A number as one element of a dtype, at the start of 8 bytes.
struct FactorScalar {
  char bytes[8] = {};
};
template <class T>
FactorScalar scalar(T value) {
  FactorScalar result;
  std::memcpy(result.bytes, &value, sizeof value);
  return result;
}
FactorScalar scalar_of(double factor, at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return scalar(c10::Half(static_cast<float>(factor)));
    case at::kBFloat16:
      return scalar(c10::BFloat16(static_cast<float>(factor)));
    case at::kFloat8_e4m3fn:
      return scalar(c10::Float8_e4m3fn(static_cast<float>(factor)));
    case at::kFloat8_e5m2:
      return scalar(c10::Float8_e5m2(static_cast<float>(factor)));
    case at::kFloat:
      return scalar(static_cast<float>(factor));
    case at::kDouble:
      return scalar(factor);
    default:
      throw CommError(Errc::kInvalidArgument,
                      std::string("PREMUL_SUM: a number cannot scale data of dtype ") +
                          dtype_name(dtype) + "; use a tensor factor of that dtype");
  }
}

}  // namespace

TensorBytes::TensorBytes(const at::Tensor& tensor) : data(nullptr), size(tensor.nbytes()) {
  require_plain_memory(tensor);
  if (tensor.numel() == 0) return;
  // Not data_ptr(): a tensor that requires a gradient or is copy-on-write must be transferred, too.
  data = static_cast<char*>(tensor.storage().mutable_data()) +
         static_cast<size_t>(tensor.storage_offset()) * tensor.element_size();
}

bool is_reducible(at::ScalarType dtype) noexcept { return reducible(dtype).has_value(); }

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const TensorBytes x(a), y(b);
  return x.size > 0 && y.size > 0 && x.data < y.data + y.size && y.data < x.data + x.size;
}

bool is_in_place_or_disjoint(const at::Tensor& input, const at::Tensor& output, int rank) {
  if (!overlap(input, output)) return true;
  const TensorBytes from(input), into(output);
  const auto& [part, whole] = from.size < into.size ? std::pair(from, into) : std::pair(into, from);
  return part.data == whole.data + static_cast<size_t>(rank) * part.size;
}

at::Tensor copy_input_if_overlapping(const at::Tensor& input, const at::Tensor& output, int rank) {
  return is_in_place_or_disjoint(input, output, rank) ? input : input.clone();
}

std::vector<at::Tensor> copy_if_overlapping(const std::vector<at::Tensor>& slots,
                                            const at::Tensor& output, int rank) {
  auto copies = slots;
  for (size_t i = 0; i < copies.size(); ++i) {
    if (!overlap(copies[i], output)) continue;
    const TensorBytes from(copies[i]), into(output);
    const bool is_own = static_cast<int>(i) == rank && from.data == into.data;
    if (!is_own || from.size != into.size) copies[i] = copies[i].clone();
  }
  return copies;
}

at::Tensor factor_element(const at::Tensor& factor, at::ScalarType dtype,
                          const at::Device& device) {
  if (factor.defined() && factor.numel() == 1 && factor.scalar_type() == dtype &&
      (factor.is_cpu() || factor.device() == device))
    return factor;
  throw CommError(
      Errc::kInvalidArgument,
      std::string("PREMUL_SUM: the factor must be a number, or a tensor of one "
                  "element of dtype ") +
          dtype_name(dtype) + " on cpu or " + device.str() + "; it is " +
          (factor.defined() ? std::to_string(factor.numel()) + " elements of dtype " +
                                  dtype_name(factor.scalar_type()) + " on " + factor.device().str()
                            : "undefined"));
}

NcclReduction::NcclReduction(Communicator& communicator, const ReduceOp& op, at::ScalarType dtype)
    : communicator_(communicator), op_(operation(op.type(), dtype)) {
  const auto& library = communicator.library();
  auto native = reducible(dtype);
  if (const auto small = float8(dtype); small && library.vendor().has_config) {
    library.require_version(dtype_name(dtype).c_str(), kFloat8Since);
    native = small;
  }
  if (!native)
    throw CommError(
        Errc::kUnsupported,
        std::string(library.vendor().library) + " does not reduce dtype " + dtype_name(dtype) +
            "; it reduces float16, bfloat16, float32, float64, int8, uint8, int32, uint32, "
            "int64, uint64 and bool; NCCL and RCCL since 2.24 also float8_e4m3fn and float8_e5m2");
  dtype_ = *native;
}

void NcclReduction::scale_by(const PreMulSumFactorT& factor, at::ScalarType dtype,
                             const at::Device& device, const WaitOptions& wait) {
  FactorScalar value;
  void* at = value.bytes;
  auto where = abi::ScalarResidence::kHostImmediate;
  if (const auto* tensor = std::get_if<at::Tensor>(&factor)) {
    factor_element(*tensor, dtype, device);
    const TensorBytes bytes(*tensor);
    if (tensor->is_cpu()) {
      std::memcpy(value.bytes, bytes.data, bytes.size);
    } else {
      factor_ = *tensor;
      at = bytes.data;
      where = abi::ScalarResidence::kDevice;
    }
  } else {
    value = scalar_of(std::get<double>(factor), dtype);
  }
  const auto& library = communicator_.library();
  auto* const create = library.require(library.RedOpCreatePreMulSum, "PREMUL_SUM", kPremulSumSince);
  communicator_.call(
      [&](const VendorLibrary&, abi::Comm comm) { return create(&op_, at, dtype_, where, comm); },
      [&wait]() -> const WaitOptions& { return wait; });
  has_premul_op_ = true;
}

NcclReduction::~NcclReduction() {
  if (!has_premul_op_) return;
  try {
    communicator_.call(
        [&](const VendorLibrary& library, abi::Comm comm) {
          return library.RedOpDestroy(op_, comm);
        },
        [] {
          return WaitOptions{
              Clock::now(),
              [] {
                return std::string("the library did not destroy a PREMUL_SUM operation in time");
              },
              {},
              {}};
        });
  } catch (const std::exception& e) {
    // An aborted communicator frees its operations itself.
    if (!communicator_.failure()) base::log(base::LogLevel::kWarning, e.what());
  }
}

void NcclReduction::retain_factor(KeptStorages& kept) const {
  if (factor_.defined()) kept.push_back(factor_.storage());
}

}  // namespace torch::comms::nccl
