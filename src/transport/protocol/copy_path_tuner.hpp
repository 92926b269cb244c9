#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <torchcomms/base/export.hpp>

#include "transport/protocol/protocol_thresholds.hpp"

namespace torch::comms::transport {

// Chooses how large messages between processes of a host move: by a remote read of the receiver, or
// by copy-in/copy-out through the ring, where both ends copy, each on its core.
//
// Copy-in/copy-out can be faster where the two cores share a cache; where they share none it takes
// several times as long. On a virtual machine this changes while it runs. So the tuner chooses the
// path that was clearly faster recently. It probes the other path now and then with a few messages.
// The fastest of them counts, because the first one finds its data in the wrong caches. Measured
// with two ranks on two virtual cores of an AMD EPYC: broadcasts of 16 MB take 1.7 ms by
// copy-in/copy-out and 2.7 ms by remote read; some minutes later 6.0 and 3.0 ms.
//
// One tuner serves the messages of one peer.
// Threads: one at a time.
class TC_API CopyPathTuner {
 public:
  enum class CopyPath : uint8_t { kRemoteRead, kCopyInOut };

  // Messages of up to `first` bytes are one size class, messages of up to twice that size the next
  // one, and so on. Classes over `max_remote_read_bytes` bytes begin with copy-in/copy-out.
  explicit CopyPathTuner(uint64_t first, uint64_t max_remote_read_bytes = UINT64_MAX) noexcept;
  CopyPath choose(uint64_t bytes) noexcept;
  // Returns: what the next choose() will return.
  CopyPath preview(uint64_t bytes) const noexcept;
  // Returns: the path of a message that is not timed.
  CopyPath default_path(uint64_t bytes) const noexcept { return class_of(bytes).default_path; }
  // Returns: whether the default path of this size class was ever timed.
  bool has_sample(uint64_t bytes) const noexcept { return class_of(bytes).ns_a_byte > 0; }
  // Records how long a message took for which choose() was called. nanoseconds::max() means that
  // the message could not move on this path.
  void add_sample(CopyPath path, uint64_t bytes, std::chrono::nanoseconds time) noexcept;
  size_t class_number(uint64_t bytes) const noexcept;
  // Returns: `average` (0: nothing known yet) updated with `sample`. One sample has a limited
  // weight, because an interruption says little.
  static double smoothed(double average, double sample) noexcept;

 private:
  // A probe sends kProbeMessages messages on the other path. The interval between probes, in
  // messages, grows while the other path is not faster. It shrinks when the default path has become
  // slow. If the other path is clearly slower, the interval bounds the cost of probes to
  // kMaxProbeOverhead, as far as kLastProbe allows.
  static constexpr uint32_t kFirstProbe = 8, kLastProbe = 256, kProbeMessages = 3;
  static constexpr uint32_t kMaxGrowth = 4;  // factor by which an interval grows at a time
  static constexpr double kMaxProbeOverhead = 0.03;
  struct CopySizeClass {
    CopyPath default_path = CopyPath::kRemoteRead;
    // On the default path: now, and the least since it became the default.
    double ns_a_byte = 0, min_ns_a_byte = 0;
    // On the other path: the least of the last probe.
    double probed_ns_a_byte = 0;
    uint32_t interval = kFirstProbe, until_probe = kFirstProbe, probes = 0;
  };
  static void update_default(CopySizeClass& size_class) noexcept;
  static uint32_t min_interval(const CopySizeClass& size_class) noexcept;
  CopySizeClass& class_of(uint64_t bytes) noexcept { return classes_[class_number(bytes)]; }
  const CopySizeClass& class_of(uint64_t bytes) const noexcept {
    return classes_[class_number(bytes)];
  }
  static CopyPath upcoming(const CopySizeClass& size_class) noexcept;

  uint64_t first_class_bytes_;
  std::array<CopySizeClass, 16> classes_;
};

}  // namespace torch::comms::transport
