#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include <torchcomms/base/export.hpp>

#include "transport/protocol/copy_path_tuner.hpp"

namespace torch::comms::transport {

// Decides whether messages slightly over the eager limit are eager, too, between processes of a
// host. An eager message is copied by both ends through the ring and needs no rendezvous. Where the
// cores share a cache this takes half the time of CMA, which costs a microsecond before it begins;
// where they share none it may take longer. Measured with two ranks on two cores of an AMD EPYC
// that share a cache: an all_gather of 64 KB takes 3.6 us with eager messages and 6.0 us with CMA.
//
// One tuner serves the messages of one peer, in both directions.
// Threads: one at a time.
class TC_API EagerThresholdTuner {
 public:
  using Time = std::chrono::nanoseconds;

  // `is_oversubscribed`: ranks share cores, so the wait of a message for the peer's turn is part of
  // its cost.
  explicit EagerThresholdTuner(bool is_oversubscribed) noexcept
      : is_oversubscribed_(is_oversubscribed) {}
  // Returns: whether a message of more than kMaxEagerBytes and at most kMaxInlineEagerBytes bytes
  // is sent eagerly.
  bool choose_eager(uint64_t bytes) noexcept {
    return path_tuner_.choose(bytes) == CopyPathTuner::CopyPath::kCopyInOut;
  }
  // Records that an eager message was sent; the copy of this end took `copy`.
  void on_sent(uint64_t bytes, Time copy) noexcept;
  // Records that the peer has read an announced message, `after` its announcement.
  void on_peer_read(uint64_t bytes, Time after) noexcept;
  // Records that the peer did not read an announced message and asked for its data instead.
  void on_peer_refused(uint64_t bytes) noexcept;
  // Records that this rank has read a message of the peer; the copy, without any wait, took `copy`.
  void on_local_read(uint64_t bytes, Time copy) noexcept;

 private:
  // Largest message of the first size class, in bytes.
  static constexpr uint64_t kFirstClassBytes = 2 * kMaxEagerBytes;
  static constexpr Time kAnnounceOverhead{1000};  // RTS and its answer

  // One sample mainly shows whether it was interrupted. So the fastest of this many samples of the
  // default path counts.
  static constexpr int kSamplesPerEstimate = 8;
  struct EagerSizeClass {
    double read_ns = 0;  // 0: not known; a remote read of this rank
    Time min_copy = Time::max();
    int copies = 0;  // samples of which min_copy is the least
  };
  EagerSizeClass& class_of(uint64_t bytes) noexcept;

  const bool is_oversubscribed_;
  CopyPathTuner path_tuner_{kFirstClassBytes};
  std::array<EagerSizeClass, 4> classes_;
};

}  // namespace torch::comms::transport
