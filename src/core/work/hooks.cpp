#include <torchcomms/hooks.hpp>

namespace torch::comms {

std::unique_ptr<RemovableHandle> RemovableHandle::create(std::function<void()> remove) {
  return std::unique_ptr<RemovableHandle>(new RemovableHandle(std::move(remove)));
}

void RemovableHandle::remove() {
  if (const auto remove = std::exchange(remove_, nullptr)) remove();
}

}  // namespace torch::comms
