#include <torchcomms/capabilities.hpp>

namespace torch::comms {

Capabilities Capabilities::all() {
  Capabilities capabilities;
  capabilities.operations.set();
  capabilities.dtypes.set();
  capabilities.reduce_ops.set();
  capabilities.devices.set();
  return capabilities;
}

}  // namespace torch::comms
