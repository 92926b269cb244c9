#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include <torchcomms/base/error.hpp>

#include "transport/shm/shm_handshake.hpp"
#include "transport/shm/shm_segment.hpp"

namespace torch::comms::transport::shm {

// Connects one rank to another and passes it the segment that this rank has made for both. A rank
// without memory for a segment connects without one, to report the reason. The connector retries if
// the peer's queue is full, or if the peer closes the connection, as a process without a free
// descriptor does. Frames that were written to the segment meanwhile stay.
class ShmConnector {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Without `segment`, `hello` has the reason.
  ShmConnector(std::string address, const ShmHello& hello, std::optional<ShmSegment> segment)
      : address_(std::move(address)), hello_(hello), segment_(std::move(segment)) {}

  // Must be called only if has_segment().
  const ShmSegment& segment() const noexcept { return *segment_; }
  bool has_segment() const noexcept { return segment_.has_value(); }
  // Connects and sends the segment.
  // Returns: the socket; empty if the connector must retry or has failed, or if it has sent the
  // reason to the peer.
  base::FileDescriptor connect(Time now);
  // Handles the end of the socket.
  // Returns: true if the connector will retry; false if the peer had taken the segment, so that the
  // peer has ended.
  bool on_socket_ended(Time now);
  bool is_accepted() const noexcept;

  // Returns: when to connect again; Time::max() if no retry is due.
  Time retry_at() const noexcept { return retry_at_; }
  // Returns: why the connector has failed; empty while it has not.
  const std::string& error_text() const noexcept { return error_text_; }
  // Returns: the error; kResourceExhausted if this process has run out of something.
  Errc error_code() const noexcept { return error_code_; }

 private:
  void on_rejected(Time now);
  void fail(int error);

  std::string address_;
  ShmHello hello_;
  std::optional<ShmSegment> segment_;
  bool has_sent_reason_ = false;  // the reason was sent to the peer
  size_t rejections_ = 0;         // times that the peer has closed the connection
  Time retry_at_ = Time::max();
  std::string error_text_;
  Errc error_code_ = Errc::kPeerFailed;
};

}  // namespace torch::comms::transport::shm
