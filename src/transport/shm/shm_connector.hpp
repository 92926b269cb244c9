#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include <torchcomms/base/error.hpp>

#include "transport/shm/shm_handshake.hpp"
#include "transport/shm/shm_segment.hpp"

namespace torch::comms::transport::shm {

// One rank's way to another, with the segment that it has made for both: until the other one has
// taken it. A rank that has no memory for a segment makes the call without one, to say why. A peer
// whose queue is full, or who turns its callers away as a process without a descriptor does for a
// moment, is called again. What was written to the segment meanwhile stays.
class ShmConnector {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // No `segment`: `hello` has the reason.
  ShmConnector(std::string address, const ShmHello& hello, std::optional<ShmSegment> segment)
      : address_(std::move(address)), hello_(hello), segment_(std::move(segment)) {}

  // Requires that the call has one.
  const ShmSegment& segment() const noexcept { return *segment_; }
  bool has_segment() const noexcept { return segment_.has_value(); }
  // Connects, and hands over the segment. The socket; none: it is to be tried again, or has failed,
  // or the peer has the reason now.
  base::FileDescriptor connect(Time now);
  // The socket has ended. False: the peer had taken the segment, so this is the end of it.
  bool on_socket_ended(Time now);
  bool is_accepted() const noexcept;

  // When to dial again; Time::max() where that is not wanted.
  Time retry_at() const noexcept { return retry_at_; }
  // Why there is no hope; empty while there is.
  const std::string& error_text() const noexcept { return error_text_; }
  // kResourceExhausted where it is this process that has run out of something.
  Errc error_code() const noexcept { return error_code_; }

 private:
  void on_rejected(Time now);
  void fail(int error);

  std::string address_;
  ShmHello hello_;
  std::optional<ShmSegment> segment_;
  bool has_sent_reason_ = false;  // the peer has the reason
  size_t rejections_ = 0;         // times
  Time retry_at_ = Time::max();
  std::string error_text_;
  Errc error_code_ = Errc::kPeerFailed;
};

}  // namespace torch::comms::transport::shm
