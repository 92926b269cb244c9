#include "core/comm/memory_range.hpp"

namespace torch::comms {

MemoryRange memory_range_of(const at::Tensor& tensor, const Context& context) {
  if (!tensor.defined() || tensor.layout() != at::kStrided ||
      !tensor.is_non_overlapping_and_dense())
    throw CommError(Errc::kInvalidArgument,
                    tensor.defined()
                        ? "the tensor is not one piece of memory; pass a dense tensor, "
                          "such as one over its whole storage"
                        : "the tensor is undefined",
                    context);
  if (tensor.nbytes() == 0) return {};
  auto* const begin = static_cast<char*>(tensor.storage().mutable_data());
  return {begin + static_cast<size_t>(tensor.storage_offset()) * tensor.element_size(),
          tensor.nbytes()};
}

}  // namespace torch::comms
