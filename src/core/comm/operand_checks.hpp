#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torchcomms/base/export.hpp>
#include <torchcomms/types.hpp>

// What every backend for CPU tensors asks of its operands, besides the rest of validate(). Throws
// CommError(kInvalidArgument), without context.
namespace torch::comms {

// The tensor's elements lie in its memory as they are: it has memory of its own (a fake tensor has
// none), and is no conjugate or negative that torch has not carried out yet.
TC_API void require_plain_memory(const at::Tensor& tensor);
// Why it is not so: what "the tensor" is or has. nullopt: it is.
TC_API std::optional<std::string> plain_memory_error(const at::Tensor& tensor);

// Sets the function that gives the name of a tensor's Python class, for messages. Without one, as
// in C++ programs, messages name no class.
TC_API void set_tensor_class_name(std::string (*name_of)(const at::Tensor& tensor));

// `factor` can scale `count` elements of `dtype`: a number for floating-point and complex data,
// else a CPU tensor of 1 or `count` elements that converts to `dtype`.
TC_API void require_valid_factor(const PreMulSumFactorT& factor, at::ScalarType dtype,
                                 int64_t count);

// On this thread, while it lives, operators go straight to their CPU kernels.
class PlainDispatchGuard {
 private:
  c10::impl::ExcludeDispatchKeyGuard guard_{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
      c10::python_ks | c10::functorch_transforms_ks |
      c10::DispatchKeySet({c10::DispatchKey::Functionalize, c10::DispatchKey::PythonDispatcher,
                           c10::DispatchKey::PreDispatch})};
};

}  // namespace torch::comms
