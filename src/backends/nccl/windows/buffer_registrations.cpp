#include "backends/nccl/windows/buffer_registrations.hpp"

#include <string>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "core/comm/memory_range.hpp"

namespace torch::comms::nccl {
namespace {

BufferRegistrations::BufferAddressRange range_of(const at::Tensor& tensor, const Context& context) {
  const auto memory = memory_range_of(tensor, context);
  return {memory.begin, memory.size_bytes};
}

}  // namespace

void BufferRegistrations::add(Communicator& communicator, const at::Tensor& tensor,
                              const WaitOptions& wait, const Context& context) {
  add(communicator, range_of(tensor, context), tensor.storage(), wait);
}

void BufferRegistrations::add(Communicator& communicator, const BufferAddressRange& range,
                              const WaitOptions& wait) {
  add(communicator, range, c10::Storage(), wait);
}

void BufferRegistrations::add(Communicator& communicator, const BufferAddressRange& range,
                              c10::Storage memory, const WaitOptions& wait) {
  if (const auto found = entries_.find(range); found != entries_.end()) {
    ++found->second.count;
    if (!found->second.memory) found->second.memory = std::move(memory);
    return;
  }
  // The library does not register an empty range.
  void* const registration =
      range.size_bytes == 0 ? nullptr
                            : communicator.register_memory(range.begin, range.size_bytes, wait);
  entries_[range] = {std::move(memory), registration, 1};
}

void BufferRegistrations::remove(Communicator& communicator, const at::Tensor& tensor,
                                 const WaitOptions& wait, const Context& context) {
  const auto range = range_of(tensor, context);
  if (!entries_.contains(range))
    throw CommError(Errc::kInvalidArgument,
                    "the tensor of " + std::to_string(tensor.nbytes()) +
                        " bytes is not registered with this communicator",
                    context);
  remove(communicator, range, wait);
}

void BufferRegistrations::remove(Communicator& communicator, const BufferAddressRange& range,
                                 const WaitOptions& wait) {
  const auto found = entries_.find(range);
  if (found == entries_.end() || --found->second.count > 0) return;
  const auto entry = entries_.extract(found).mapped();
  if (entry.registration != nullptr) communicator.deregister_memory(entry.registration, wait);
}

size_t BufferRegistrations::size_bytes() const noexcept {
  size_t sum = 0;
  for (const auto& [range, entry] : entries_) sum += range.size_bytes;
  return sum;
}

void BufferRegistrations::clear(Communicator& communicator, const WaitOptions& wait) {
  while (!entries_.empty()) {
    const auto entry = entries_.extract(entries_.begin()).mapped();
    if (entry.registration != nullptr) communicator.deregister_memory(entry.registration, wait);
  }
}

}  // namespace torch::comms::nccl
