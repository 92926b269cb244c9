#pragma once

#include <atomic>

namespace torch::comms::ctran {

// Counts the teams of several ranks that this process has on a device; an object is one of them.
// Threads: any.
class DeviceTeamCount {
 public:
  DeviceTeamCount(int device, int ranks);  // a team of one rank is not counted
  ~DeviceTeamCount() { release(); }
  DeviceTeamCount(const DeviceTeamCount&) = delete;
  DeviceTeamCount& operator=(const DeviceTeamCount&) = delete;

  void release() noexcept;  // stops counting this team before its destruction
  static bool has_any(int device);

 private:
  const int device_;
  std::atomic<bool> is_counted_;
};

}  // namespace torch::comms::ctran
