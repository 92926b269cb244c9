#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include <torchcomms/base/export.hpp>

#include "transport/protocol/copy_path_tuner.hpp"

namespace torch::comms::transport {

// Whether messages between processes of a host that are too large to leave before their receive is
// there, but not by much, do so nevertheless: both ends copy them then, through the channel, and
// nobody is asked. Where the cores share a cache that takes half the time of the system's copy,
// which costs a microsecond before it begins; where they share none it may take longer. Measured
// with two ranks on two cores of an AMD EPYC that share one: an all_gather of 64 KB takes 3.6 us
// this way and 6.0 us copied by the system.
//
// Of the messages of one peer, in both directions. Threads: one at a time.
class TC_API EagerThresholdTuner {
 public:
  using Time = std::chrono::nanoseconds;

  // `takes_turns`: ranks share cores, so an answer takes a turn of theirs, which is part of the
  // way.
  explicit EagerThresholdTuner(bool takes_turns) noexcept : is_oversubscribed_(takes_turns) {}
  // Of a message with more than kMaxEagerBytes bytes and at most kMaxInlineEagerBytes.
  bool choose_eager(uint64_t bytes) noexcept {
    return path_tuner_.choose(bytes) == CopyPathTuner::CopyPath::kCopyInOut;
  }
  // It has left: this end's copy took so long.
  void on_sent(uint64_t bytes, Time copy) noexcept;
  // It was announced, and the peer has copied it: this long after.
  void on_peer_read(uint64_t bytes, Time after) noexcept;
  // It was announced, but the peer would not copy it.
  void on_peer_refused(uint64_t bytes) noexcept;
  // One of the peer's was copied here: what it takes without waiting for anybody.
  void on_local_read(uint64_t bytes, Time copy) noexcept;

 private:
  static constexpr uint64_t kFirstClassBytes =
      2 * kMaxEagerBytes;                         // bytes of the first class at most
  static constexpr Time kAnnounceOverhead{1000};  // what goes back and forth beside the copy

  // What is measured of one message is that it was interrupted, or not: of so many, which all went
  // the usual way, the fastest counts.
  static constexpr int kSamplesPerEstimate = 8;
  struct EagerSizeClass {
    double read_ns = 0;  // 0: not known
    Time min_copy = Time::max();
    int copies = 0;  // of which that is the least
  };
  EagerSizeClass& class_of(uint64_t bytes) noexcept;

  const bool is_oversubscribed_;
  CopyPathTuner path_tuner_{kFirstClassBytes};
  std::array<EagerSizeClass, 4> classes_;
};

}  // namespace torch::comms::transport
