#include "core/comm/operand_checks.hpp"

#include <atomic>
#include <string>

#include <torchcomms/base/error.hpp>

#include "core/options/dtype_name.hpp"

namespace torch::comms {
namespace {

std::atomic<std::string (*)(const at::Tensor&)> tensor_class_name = nullptr;

// Returns: whether a Python class implements the operators of the tensor.
bool is_subclass(const at::Tensor& tensor) {
  return tensor.key_set().has(c10::DispatchKey::Python);
}

std::string no_memory(const at::Tensor& tensor) {
  const auto name_of = tensor_class_name.load();
  if (!is_subclass(tensor) || name_of == nullptr) return "has no memory (a fake or meta tensor)";
  return "is of class " + name_of(tensor) +
         ", which has no memory of its own; pass a plain tensor: to_local() of a DTensor, "
         "wait() of an asynchronous tensor";
}

}  // namespace

void set_tensor_class_name(std::string (*name_of)(const at::Tensor&)) {
  tensor_class_name = name_of;
}

std::optional<std::string> plain_memory_error(const at::Tensor& tensor) {
  if (tensor.is_conj() || tensor.is_neg())
    return "is a lazy conjugate or negative; pass tensor.resolve_conj().resolve_neg()";
  if (!tensor.has_storage()) return no_memory(tensor);
  const bool is_empty = !is_subclass(tensor) && tensor.numel() == 0;
  if (!is_empty && tensor.storage().data() == nullptr) return no_memory(tensor);
  return std::nullopt;
}

void require_plain_memory(const at::Tensor& tensor) {
  if (const auto why = plain_memory_error(tensor))
    throw CommError(Errc::kInvalidArgument, "a tensor " + *why);
}

void require_valid_factor(const PreMulSumFactorT& factor, at::ScalarType dtype, int64_t count) {
  const auto refuse = [&](const std::string& what) {
    throw CommError(Errc::kInvalidArgument, "PREMUL_SUM: " + what + " cannot scale " +
                                                std::to_string(count) + " elements of dtype " +
                                                dtype_name(dtype));
  };
  const bool integers = c10::isIntegralType(dtype, /*includeBool=*/true);
  if (std::holds_alternative<double>(factor)) {
    if (integers) refuse("a number as factor (use a tensor of integers)");
    return;
  }
  const auto& tensor = std::get<at::Tensor>(factor);
  if (!tensor.defined()) refuse("an undefined factor");
  const std::string what = std::string("a factor of dtype ") + dtype_name(tensor.scalar_type()) +
                           " with " + std::to_string(tensor.numel()) + " elements on " +
                           tensor.device().str();
  const auto factor_dtype = tensor.scalar_type();
  const bool converts = integers ? c10::isIntegralType(factor_dtype, /*includeBool=*/false)
                                 : c10::isComplexType(dtype) || !c10::isComplexType(factor_dtype);
  const bool fits = tensor.numel() == 1 || tensor.numel() == count;
  if (!converts || !fits || !tensor.device().is_cpu()) refuse(what);
}

}  // namespace torch::comms
