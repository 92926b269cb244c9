#pragma once

namespace torch::comms::ctran {

// One of the teams of several ranks that this process has on a device. Any thread.
class OneOfDevice {
 public:
  OneOfDevice(int device, int ranks);  // of a rank alone: counts nothing
  ~OneOfDevice();
  OneOfDevice(const OneOfDevice&) = delete;
  OneOfDevice& operator=(const OneOfDevice&) = delete;

  static bool has_any(int device);

 private:
  const int device_;
  const bool counts_;
};

}  // namespace torch::comms::ctran
