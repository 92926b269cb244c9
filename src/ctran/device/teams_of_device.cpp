#include "ctran/device/teams_of_device.hpp"

#include <map>
#include <mutex>

namespace torch::comms::ctran {
namespace {

std::mutex mutex;
std::map<int, int>& counts() {
  static auto* const all = new std::map<int, int>;  // teams may end after static objects have
  return *all;
}

}  // namespace

OneOfDevice::OneOfDevice(int device, int ranks) : device_(device), counts_(ranks > 1) {
  if (!counts_) return;
  const std::scoped_lock lock(mutex);
  ++counts()[device_];
}

void OneOfDevice::leave() noexcept {
  if (!counts_.exchange(false)) return;
  const std::scoped_lock lock(mutex);
  --counts()[device_];
}

bool OneOfDevice::has_any(int device) {
  const std::scoped_lock lock(mutex);
  const auto found = counts().find(device);
  return found != counts().end() && found->second > 0;
}

}  // namespace torch::comms::ctran
