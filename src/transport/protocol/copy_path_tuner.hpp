#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <torchcomms/base/export.hpp>

#include "transport/protocol/protocol_thresholds.hpp"

namespace torch::comms::transport {

// How large messages between processes of a host move: copied by their receiver out of the sender's
// memory, or by both ends through the channel, each on its core. Where the two cores share a cache
// the channel can be the faster one, where they share none it takes several times as long; and
// cores of a virtual machine change that as it runs. So whichever took clearly less the last times
// is chosen, and the other one tried now and then: a few messages, of which the fastest counts, for
// the first one finds its data in the wrong caches. Measured with two ranks on two virtual cores of
// an AMD EPYC: broadcasts of 16 MB take 1.7 ms through the channel and 2.7 ms copied, some minutes
// later 6.0 and 3.0.
//
// Of the messages of one peer. Threads: one at a time.
class TC_API CopyPathTuner {
 public:
  enum class CopyPath : uint8_t { kRemoteRead, kCopyInOut };

  // Messages of `first` bytes and less are one class, of up to twice as many the next one, and so
  // on. Those of over `most_fetched` begin with the channel.
  explicit CopyPathTuner(uint64_t first, uint64_t most_fetched = UINT64_MAX) noexcept;
  CopyPath choose(uint64_t bytes) noexcept;
  // What that will say.
  CopyPath preview(uint64_t bytes) const noexcept;
  // The way of one that is not timed.
  CopyPath default_path(uint64_t bytes) const noexcept { return class_of(bytes).default_path; }
  // Whether that was ever timed.
  bool has_sample(uint64_t bytes) const noexcept { return class_of(bytes).ns_a_byte > 0; }
  // What a message took that next() was asked for; a time without end if it could not go that way.
  void add_sample(CopyPath way, uint64_t bytes, std::chrono::nanoseconds time) noexcept;
  size_t class_number(uint64_t bytes) const noexcept;
  // What is known of a time, 0 if nothing, with one more: an interruption says little.
  static double smoothed(double known, double now) noexcept;

 private:
  // The other way is tried after so many messages, and more seldom the longer it is not better;
  // soon again where the usual one has become slow. Where it is known to be worse, and not by a few
  // messages alone, its tries take no more than a part of the time, as far as the last interval
  // allows.
  static constexpr uint32_t kFirstProbe = 8, kLastProbe = 256, kProbeMessages = 3;
  static constexpr uint32_t kMaxGrowth = 4;  // of an interval, at a time
  static constexpr double kMaxProbeOverhead = 0.03;
  struct CopySizeClass {
    CopyPath default_path = CopyPath::kRemoteRead;
    double ns_a_byte = 0, min_ns_a_byte = 0;  // of the usual way: now, and since it has been that
    double probed_ns_a_byte = 0;              // of the other one, the least of the last tries
    uint32_t interval = kFirstProbe, until_probe = kFirstProbe, probes = 0;
  };
  static void update_default(CopySizeClass& known) noexcept;
  static uint32_t min_interval(const CopySizeClass& known) noexcept;
  CopySizeClass& class_of(uint64_t bytes) noexcept { return classes_[class_number(bytes)]; }
  const CopySizeClass& class_of(uint64_t bytes) const noexcept {
    return classes_[class_number(bytes)];
  }
  static CopyPath upcoming(const CopySizeClass& known) noexcept;

  uint64_t first_class_bytes_;
  std::array<CopySizeClass, 16> classes_;
};

}  // namespace torch::comms::transport
