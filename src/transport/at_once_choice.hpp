#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include <torchcomms/base/export.hpp>

#include "transport/copy_choice.hpp"

namespace torch::comms::transport {

// Whether messages between processes of a host that are too large to leave before their receive is
// there, but not by much, do so nevertheless: both ends copy them then, through the channel, and
// nobody is asked. Where the cores share a cache that takes half the time of the system's copy,
// which costs a microsecond before it begins; where they share none it may take longer. Measured
// with two ranks on two cores of an AMD EPYC that share one: an all_gather of 64 KB takes 3.6 us
// this way and 6.0 us copied by the system.
//
// Of the messages of one peer, in both directions. Threads: one at a time.
class TC_API AtOnceChoice {
 public:
  using Time = std::chrono::nanoseconds;

  // `takes_turns`: ranks share cores, so an answer takes a turn of theirs, which is part of the
  // way.
  explicit AtOnceChoice(bool takes_turns) noexcept : takes_turns_(takes_turns) {}
  // Of a message with more than kMostEagerOnHost bytes and at most kMostAtOnceOnHost.
  bool next(uint64_t bytes) noexcept { return choice_.next(bytes) == CopyChoice::Way::kChannel; }
  // It has left: this end's copy took so long.
  void left(uint64_t bytes, Time copy) noexcept;
  // It was announced, and the peer has copied it: this long after.
  void was_taken(uint64_t bytes, Time after) noexcept;
  // It was announced, but the peer would not copy it.
  void was_refused(uint64_t bytes) noexcept;
  // One of the peer's was copied here: what it takes without waiting for anybody.
  void fetched(uint64_t bytes, Time copy) noexcept;

 private:
  static constexpr uint64_t kFirst = 2 * kMostEagerOnHost;  // bytes of the first class at most
  static constexpr Time kAnnounced{1000};  // what goes back and forth beside the copy

  // What is measured of one message is that it was interrupted, or not: of so many, which all went
  // the usual way, the fastest counts.
  static constexpr int kTogether = 8;
  struct SizeClass {
    double fetch_ns = 0;  // 0: not known
    Time least_copy = Time::max();
    int copies = 0;  // of which that is the least
  };
  SizeClass& class_of(uint64_t bytes) noexcept;

  const bool takes_turns_;
  CopyChoice choice_{kFirst};
  std::array<SizeClass, 4> classes_;
};

}  // namespace torch::comms::transport
