#include "ctran/team/team_count.hpp"

#include <map>
#include <mutex>

namespace torch::comms::ctran {
namespace {

std::mutex mutex;
std::map<int, int>& counts() {
  static auto* const all = new std::map<int, int>;  // teams may be destroyed after static objects
  return *all;
}

}  // namespace

DeviceTeamCount::DeviceTeamCount(int device, int ranks) : device_(device), is_counted_(ranks > 1) {
  if (!is_counted_) return;
  const std::scoped_lock lock(mutex);
  ++counts()[device_];
}

void DeviceTeamCount::release() noexcept {
  if (!is_counted_.exchange(false)) return;
  const std::scoped_lock lock(mutex);
  --counts()[device_];
}

bool DeviceTeamCount::has_any(int device) {
  const std::scoped_lock lock(mutex);
  const auto found = counts().find(device);
  return found != counts().end() && found->second > 0;
}

}  // namespace torch::comms::ctran
