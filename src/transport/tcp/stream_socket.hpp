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

// It is this process, or its system, that failed to send with `error` (an errno), and not the
// connection: the peer may be well.
TC_API bool is_local_error(int error) noexcept;

// One socket of a connection: frames out, whole ones or kept until the socket takes the rest; bytes
// in, cut into frames. Payloads go from and to the caller's memory where they can.
class StreamSocket {
 public:
  StreamSocket(base::FileDescriptor socket, uint32_t max_payload, unsigned lanes);

  bool try_send(const Frame& frame, std::span<const ConstBytes> payload,
                uint32_t* borrowed) noexcept;
  // Sends on what the socket did not take. True if it took something.
  bool flush() noexcept;
  bool is_blocked() const noexcept { return !unsent_.empty(); }

  // Reads what is there, up to a bound; true if it was anything. Then error_text() may be set.
  bool receive(FrameSink& sink) noexcept;
  void cancel_writes(ConstBytes range) noexcept;

  int socket() const noexcept { return socket_.get(); }
  const std::string& error_text() const noexcept { return error_text_; }
  // It is, as its peer has sent all that it will send.
  bool has_ended() const noexcept { return has_ended_; }
  // Of what is broken: kPeerFailed, or what this process or its system failed at.
  Errc error_code() const noexcept { return error_code_; }
  // The peer's machine has everything, as far as ours knows; or will never have it.
  bool is_delivered() const noexcept;
  // Its peer's machine has not answered for so long.
  void fail_keepalive(std::chrono::milliseconds silence) noexcept;
  // For the end: lets what was sent arrive. Closing with unread bytes would take it back.
  void close_gracefully() noexcept;

 private:
  void fail(int error) noexcept;
  void fail_to_send(int error) noexcept;
  void queue_unsent(std::span<const ConstBytes> pieces, size_t sent, uint32_t* borrowed);
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
  int send_error_ = 0;  // with which the socket takes nothing any more

  // Out: pieces that the socket did not take, of one frame; `copy_` holds what was copied of them.
  std::vector<ConstBytes> unsent_;
  std::vector<std::byte> copy_;
  uint32_t* frames_in_use_ = nullptr;  // whose memory `rest_` points into

  // In: [begin_, end_) of `buffer_` is unread. While `in_payload_`, bytes go to `target_`.
  std::vector<std::byte> buffer_;
  size_t begin_ = 0, end_ = 0;
  bool in_payload_ = false;
  Frame frame_;
  Bytes target_;
  size_t filled_ = 0;
  std::vector<std::byte> staged_;
};

}  // namespace torch::comms::transport::tcp
