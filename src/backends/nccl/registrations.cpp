#include "backends/nccl/registrations.hpp"

#include <string>
#include <utility>

#include <torchcomms/base/error.hpp>

namespace torch::comms::nccl {
namespace {

// The memory of a tensor that fills it, in whatever order.
Registrations::Range range_of(const at::Tensor& tensor, const Context& context) {
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
  add(communicator, range_of(tensor, context), tensor.storage(), wait);
}

void Registrations::add(Communicator& communicator, const Range& range, const Wait& wait) {
  add(communicator, range, c10::Storage(), wait);
}

void Registrations::add(Communicator& communicator, const Range& range, c10::Storage memory,
                        const Wait& wait) {
  if (const auto found = entries_.find(range); found != entries_.end()) {
    ++found->second.count;
    if (!found->second.memory) found->second.memory = std::move(memory);
    return;
  }
  // Of nothing there is nothing to tell.
  void* const registration =
      range.size_bytes == 0 ? nullptr
                            : communicator.register_memory(range.begin, range.size_bytes, wait);
  entries_[range] = {std::move(memory), registration, 1};
}

void Registrations::remove(Communicator& communicator, const at::Tensor& tensor, const Wait& wait,
                           const Context& context) {
  const auto range = range_of(tensor, context);
  if (!entries_.contains(range))
    throw CommError(Errc::kInvalidArgument,
                    "the tensor of " + std::to_string(tensor.nbytes()) +
                        " bytes is not registered with this communicator",
                    context);
  remove(communicator, range, wait);
}

void Registrations::remove(Communicator& communicator, const Range& range, const Wait& wait) {
  const auto found = entries_.find(range);
  if (found == entries_.end() || --found->second.count > 0) return;
  const auto entry = entries_.extract(found).mapped();
  if (entry.registration != nullptr) communicator.deregister_memory(entry.registration, wait);
}

size_t Registrations::size_bytes() const noexcept {
  size_t sum = 0;
  for (const auto& [range, entry] : entries_) sum += range.size_bytes;
  return sum;
}

void Registrations::clear(Communicator& communicator, const Wait& wait) {
  while (!entries_.empty()) {
    const auto entry = entries_.extract(entries_.begin()).mapped();
    if (entry.registration != nullptr) communicator.deregister_memory(entry.registration, wait);
  }
}

}  // namespace torch::comms::nccl
