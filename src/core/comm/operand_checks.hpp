#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torchcomms/base/export.hpp>
#include <torchcomms/types.hpp>

// Checks of operands that backends need in addition to validate(), also in calls that validate()
// does not check.
// Throws: the functions named require_*() throw CommError(kInvalidArgument) without context.
namespace torch::comms {

// Requires that the memory of the tensor holds its elements. A fake tensor has no memory, and a
// lazy conjugate or negative view does not hold its values.
TC_API void require_plain_memory(const at::Tensor& tensor);
// Returns: the reason why the tensor has no plain memory, as the predicate of a sentence about the
// tensor; nullopt if it has plain memory.
TC_API std::optional<std::string> plain_memory_error(const at::Tensor& tensor);

// Sets the function that gives the name of a tensor's Python class, for messages. Without one, as
// in C++ programs, messages name no class.
TC_API void set_tensor_class_name(std::string (*name_of)(const at::Tensor& tensor));

// Requires that `factor` can scale `count` elements of `dtype`. A number scales floating-point and
// complex data only. A tensor scales all data. It must be on the CPU, have 1 or `count` elements,
// and convert to `dtype`: integers for integers, no complex factor for real data.
TC_API void require_valid_factor(const PreMulSumFactorT& factor, at::ScalarType dtype,
                                 int64_t count);

// While the object lives, torch operators of this thread run their device kernels directly, without
// autograd, autocast, functorch, Python dispatch and tracing.
class PlainDispatchGuard {
 private:
  c10::impl::ExcludeDispatchKeyGuard guard_{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
      c10::python_ks | c10::functorch_transforms_ks |
      c10::DispatchKeySet({c10::DispatchKey::Functionalize, c10::DispatchKey::PythonDispatcher,
                           c10::DispatchKey::PreDispatch})};
};

}  // namespace torch::comms
