#include <torchcomms/health_check.hpp>

namespace torch::comms {

TorchCommsHealthCheck& TorchCommsHealthCheck::get() {
  // Never destroyed: asked from threads that outlive static destruction.
  static auto* check = new TorchCommsHealthCheck;
  return *check;
}

}  // namespace torch::comms
