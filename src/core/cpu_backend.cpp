#include "core/cpu_backend.hpp"

#include <c10/core/ScalarType.h>
#include <torchcomms/base/error.hpp>

namespace torch::comms {

Capabilities cpu_capabilities() {
  auto can = Capabilities::all();
  can.operations.reset(static_cast<size_t>(OpName::new_window));
  can.devices.reset();
  can.devices.set(static_cast<size_t>(c10::DeviceType::CPU));
  for (size_t i = 0; i < can.dtypes.size(); ++i) {
    const auto dtype = static_cast<c10::ScalarType>(i);
    if (c10::isQIntType(dtype) || c10::isBitsType(dtype) || dtype == c10::ScalarType::Undefined)
      can.dtypes.reset(i);
  }
  return can;
}

void require_cpu(const at::Device& device, const std::string& backend, const std::string& comm) {
  if (device.is_cpu()) return;
  throw CommError(Errc::kUnsupported,
                  "backend '" + backend + "' works on device cpu, not on " + device.str(),
                  {.op = "new_comm", .comm = comm});
}

std::chrono::milliseconds usable_timeout(std::chrono::milliseconds timeout) {
  return timeout.count() > 0 ? timeout : kDefaultTimeout;
}

}  // namespace torch::comms
