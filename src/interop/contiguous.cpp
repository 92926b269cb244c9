#include "interop/contiguous.hpp"

#include <algorithm>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>

namespace torch::comms {
namespace {

bool needs_copy(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_contiguous();
}

// Returns: true if the first two ranks' outputs are the same memory, in which the last rank's data
// must remain.
bool overlap(const std::vector<at::Tensor>& outputs) {
  return outputs.size() > 1 && outputs[0].defined() && outputs[1].defined() &&
         outputs[0].numel() > 0 && outputs[0].data_ptr() == outputs[1].data_ptr();
}

}  // namespace

at::Tensor contiguous(const at::Tensor& tensor) {
  return needs_copy(tensor) ? tensor.contiguous() : tensor;
}

std::vector<at::Tensor> contiguous(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  all.reserve(tensors.size());
  for (const auto& tensor : tensors) all.push_back(contiguous(tensor));
  return all;
}

bool are_writable_in_place(const std::vector<at::Tensor>& outputs) {
  return std::none_of(outputs.begin(), outputs.end(), needs_copy) && !overlap(outputs);
}

ContiguousOutputs::ContiguousOutputs(const std::vector<at::Tensor>& outputs)
    : outputs_(outputs), tensors_(outputs) {
  const at::NoGradGuard no_grad;
  const bool all = overlap(outputs);
  for (auto& tensor : tensors_) {
    // A tensor whose elements share memory cannot be the target of a copy.
    if (!all && (!needs_copy(tensor) || at::has_internal_overlap(tensor) == at::MemOverlap::Yes))
      continue;
    tensor = tensor.clone(
        at::MemoryFormat::Contiguous);  // a clone, because the operation may not write all elements
  }
}

void ContiguousOutputs::copy_back() const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (!tensors_[i].is_same(outputs_[i])) at::Tensor(outputs_[i]).copy_(tensors_[i]);
}

}  // namespace torch::comms
