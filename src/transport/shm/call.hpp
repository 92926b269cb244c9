#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include <torchcomms/base/error.hpp>

#include "transport/shm/handshake.hpp"
#include "transport/shm/segment.hpp"

namespace torch::comms::transport::shm {

// One rank's way to another, with the segment that it has made for both: until the other one has
// taken it. A rank that has no memory for a segment makes the call without one, to say why. A peer
// whose queue is full, or who turns its callers away as a process without a descriptor does for a
// moment, is called again. What was written to the segment meanwhile stays.
class Call {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // No `segment`: `hello` has the reason.
  Call(std::string address, const Hello& hello, std::optional<Segment> segment)
      : address_(std::move(address)), hello_(hello), segment_(std::move(segment)) {}

  // Requires that the call has one.
  const Segment& segment() const noexcept { return *segment_; }
  bool has_segment() const noexcept { return segment_.has_value(); }
  // Connects, and hands over the segment. The socket; none: it is to be tried again, or has failed,
  // or the peer has the reason now.
  base::FileDescriptor dial(Time now);
  // The socket has ended. False: the peer had taken the segment, so this is the end of it.
  bool ended(Time now);
  bool is_taken() const noexcept;

  // When to dial again; Time::max() where that is not wanted.
  Time again() const noexcept { return again_; }
  // Why there is no hope; empty while there is.
  const std::string& failed() const noexcept { return failed_; }
  // kResourceExhausted where it is this process that has run out of something.
  Errc code() const noexcept { return code_; }

 private:
  void turned_away(Time now);
  void give_up(int error);

  std::string address_;
  Hello hello_;
  std::optional<Segment> segment_;
  bool told_ = false;       // the peer has the reason
  size_t turned_away_ = 0;  // times
  Time again_ = Time::max();
  std::string failed_;
  Errc code_ = Errc::kPeerFailed;
};

}  // namespace torch::comms::transport::shm
