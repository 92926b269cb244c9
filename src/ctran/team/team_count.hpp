#pragma once

#include <atomic>

namespace torch::comms::ctran {

// One of the teams of several ranks that this process has on a device. Any thread.
class DeviceTeamCount {
 public:
  DeviceTeamCount(int device, int ranks);  // of a rank alone: counts nothing
  ~DeviceTeamCount() { release(); }
  DeviceTeamCount(const DeviceTeamCount&) = delete;
  DeviceTeamCount& operator=(const DeviceTeamCount&) = delete;

  void release() noexcept;  // at once
  static bool has_any(int device);

 private:
  const int device_;
  std::atomic<bool> is_counted_;
};

}  // namespace torch::comms::ctran
