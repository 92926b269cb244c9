#include "backends/ctran/tensor_registrations.hpp"

#include <string>
#include <utility>

namespace torch::comms::ctran {

void TensorRegistrations::add(const at::Tensor& tensor, const Context& context) {
  const auto range = memory_range_of(tensor, context);
  const std::lock_guard lock(mutex_);
  auto& entry = entries_[range];
  entry.memory = tensor.storage();
  ++entry.count;
}

void TensorRegistrations::remove(const at::Tensor& tensor, const Context& context) {
  const auto range = memory_range_of(tensor, context);
  c10::Storage freed;  // freed without the lock, because that may run the user's code
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(range);
  if (found == entries_.end())
    throw CommError(Errc::kInvalidArgument,
                    "the tensor of " + std::to_string(range.size_bytes) +
                        " bytes is not registered with this communicator",
                    context);
  if (--found->second.count > 0) return;
  freed = std::move(found->second.memory);
  entries_.erase(found);
}

size_t TensorRegistrations::size_bytes() const {
  const std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [range, entry] : entries_) sum += range.size_bytes;
  return sum;
}

}  // namespace torch::comms::ctran
