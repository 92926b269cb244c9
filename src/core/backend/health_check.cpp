#include <torchcomms/health_check.hpp>

namespace torch::comms {

TorchCommsHealthCheck& TorchCommsHealthCheck::get() {
  // Never destroyed, because threads that outlive static destruction read it.
  static auto* check = new TorchCommsHealthCheck;
  return *check;
}

}  // namespace torch::comms
