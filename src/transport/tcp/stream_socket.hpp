#pragma once

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"
#include "transport/connect/peer_connection.hpp"

namespace torch::comms::transport::tcp {

// Returns: whether sending failed with `error` (an errno) because of this process or its system.
// The connection and the peer may be well then.
TC_API bool is_local_error(int error) noexcept;

// One socket of a connection. It sends whole frames and keeps what the socket does not take; it
// cuts the received bytes into frames. Payloads go from and to the caller's memory where possible.
class StreamSocket {
 public:
  StreamSocket(base::FileDescriptor socket, uint32_t max_payload, unsigned channels);

  bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                uint32_t* frames_in_use) noexcept;
  // Sends data that the socket did not take before.
  // Returns: whether the socket took anything.
  bool flush() noexcept;
  bool is_blocked() const noexcept { return !unsent_.empty(); }

  // Reads available bytes, up to a bound. Afterwards error_text() may be set.
  // Returns: whether it read anything.
  bool receive(FrameSink& sink) noexcept;
  void cancel_writes(ConstBytes range) noexcept;

  int socket() const noexcept { return socket_.get(); }
  const std::string& error_text() const noexcept { return error_text_; }
  // Returns: whether the connection ended because the peer has closed it.
  bool has_ended() const noexcept { return has_ended_; }
  // Returns: the error of a broken socket: kPeerFailed, or the error of this process or its system.
  Errc error_code() const noexcept { return error_code_; }
  // Returns: whether the peer's machine has acknowledged everything, as far as this machine knows,
  // or never will.
  bool is_delivered() const noexcept;
  // Fails the socket: the peer's machine has not acknowledged for `timeout`.
  void fail_keepalive(std::chrono::milliseconds timeout) noexcept;
  // Shuts the socket down so that sent data arrive. Unread bytes are read first, because closing a
  // socket with unread bytes resets the connection and discards what was sent.
  void close_gracefully() noexcept;

 private:
  void fail(int error) noexcept;
  void fail_to_send(int error) noexcept;
  void queue_unsent(std::span<const ConstBytes> pieces, size_t sent, uint32_t* frames_in_use);
  void finish_unsent() noexcept;
  bool read_into_payload(FrameSink& sink) noexcept;
  bool cut_frames(FrameSink& sink) noexcept;
  bool begin_payload(FrameSink& sink);

  base::FileDescriptor socket_;
  uint32_t max_payload_;
  unsigned channels_;
  std::string error_text_;
  Errc error_code_ = Errc::kPeerFailed;
  bool has_ended_ = false;
  int send_error_ = 0;  // errno with which the socket takes nothing any more

  // Sending: pieces of one frame that the socket did not take. `copy_` holds those that were
  // copied.
  std::vector<ConstBytes> unsent_;
  std::vector<std::byte> copy_;
  uint32_t* frames_in_use_ = nullptr;  // counter of the request whose memory `unsent_` uses

  // Receiving: [begin_, end_) of `buffer_` is unread. While `in_payload_`, bytes go to `target_`.
  std::vector<std::byte> buffer_;
  size_t begin_ = 0, end_ = 0;
  bool in_payload_ = false;
  Frame frame_;
  Bytes target_;
  size_t filled_ = 0;
  std::vector<std::byte> staged_;
};

}  // namespace torch::comms::transport::tcp
