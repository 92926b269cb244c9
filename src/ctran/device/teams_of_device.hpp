#pragma once

#include <atomic>

namespace torch::comms::ctran {

// One of the teams of several ranks that this process has on a device. Any thread.
class OneOfDevice {
 public:
  OneOfDevice(int device, int ranks);  // of a rank alone: counts nothing
  ~OneOfDevice() { leave(); }
  OneOfDevice(const OneOfDevice&) = delete;
  OneOfDevice& operator=(const OneOfDevice&) = delete;

  void leave() noexcept;  // at once
  static bool has_any(int device);

 private:
  const int device_;
  std::atomic<bool> counts_;
};

}  // namespace torch::comms::ctran
