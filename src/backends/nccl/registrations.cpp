#include "backends/nccl/registrations.hpp"

#include <string>

#include <torchcomms/base/error.hpp>

namespace torch::comms::nccl {
namespace {

// The memory of a tensor that fills it, in whatever order.
std::pair<void*, size_t> range_of(const at::Tensor& tensor, const Context& context) {
  if (!tensor.defined() || tensor.layout() != at::kStrided ||
      !tensor.is_non_overlapping_and_dense())
    throw CommError(Errc::kInvalidArgument,
                    tensor.defined() ? "the tensor is not one piece of memory; its storage is, "
                                       "and parts that are"
                                     : "the tensor is undefined",
                    context);
  if (tensor.nbytes() == 0) return {nullptr, 0};
  auto* const begin = static_cast<char*>(tensor.storage().mutable_data());
  return {begin + static_cast<size_t>(tensor.storage_offset()) * tensor.element_size(),
          tensor.nbytes()};
}

}  // namespace

void Registrations::add(Communicator& communicator, const at::Tensor& tensor, const Wait& wait,
                        const Context& context) {
  const auto range = range_of(tensor, context);
  if (const auto found = entries_.find(range); found != entries_.end()) {
    ++found->second.count;
    return;
  }
  // Of nothing there is nothing to tell.
  void* const registration =
      range.second == 0 ? nullptr : communicator.register_memory(range.first, range.second, wait);
  entries_[range] = {tensor.storage(), registration, 1};
}

void Registrations::remove(Communicator& communicator, const at::Tensor& tensor, const Wait& wait,
                           const Context& context) {
  const auto found = entries_.find(range_of(tensor, context));
  if (found == entries_.end())
    throw CommError(Errc::kInvalidArgument,
                    "the tensor of " + std::to_string(tensor.nbytes()) +
                        " bytes is not registered with this communicator",
                    context);
  if (--found->second.count > 0) return;
  const auto entry = entries_.extract(found).mapped();
  if (entry.registration != nullptr) communicator.deregister_memory(entry.registration, wait);
}

size_t Registrations::size_bytes() const noexcept {
  size_t sum = 0;
  for (const auto& [range, entry] : entries_) sum += range.second;
  return sum;
}

void Registrations::clear(Communicator& communicator, const Wait& wait) {
  while (!entries_.empty()) {
    const auto entry = entries_.extract(entries_.begin()).mapped();
    if (entry.registration != nullptr) communicator.deregister_memory(entry.registration, wait);
  }
}

}  // namespace torch::comms::nccl
