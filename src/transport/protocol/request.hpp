#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "transport/protocol/read_validity_words.hpp"

namespace torch::comms::transport {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

// Consumes the bytes of a message in place instead of copying them. For example, a received chunk
// is reduced without a buffer of its own.
class ReceiveSink {
 public:
  virtual ~ReceiveSink() = default;
  // Consumes one chunk. Every byte of the message is passed once, in chunks of any order. If the
  // receive fails, the sink may have consumed a part of the message, or wrong bytes. A chunk begins
  // and ends at a multiple of 64 bytes, at the end of one of the sender's pieces, or at the
  // message's end. So it cuts no element. `chunk` is valid during the call.
  // Threads: called inside receive(), try_receive(), progress() or wait() of the transport.
  virtual void consume(uint64_t offset, ConstBytes chunk) noexcept = 0;
};

// Where try_receive() puts a message of exactly `bytes` bytes: memory of this size, or a sink.
struct ReceiveTarget {
  Bytes into = {};
  ReceiveSink* sink = nullptr;
  uint64_t bytes = 0;

  void write(ConstBytes message) const noexcept {
    if (message.empty()) return;
    if (sink != nullptr)
      sink->consume(0, message);
    else
      std::memcpy(into.data(), message.data(), message.size());
  }
};

// The handle of one operation in flight. It belongs to the caller. Before is_done() the caller must
// not destroy it, must not change memory that is sent, and must not access memory that is written.
// Afterwards it may be used again.
//
// Threads: those of the transport that carries the operation; a request changes only inside that
// transport's calls.
class Request {
 public:
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // Returns: whether the operation has ended; also true before the first use.
  bool is_done() const noexcept { return !is_pending_; }
  bool is_ok() const noexcept { return is_done() && !has_failed_; }
  // Returns: the error of a request that is done and not ok. Transport::error() makes an exception
  // with a text of it.
  Errc error() const noexcept { return error_; }
  int peer() const noexcept { return peer_; }
  // Marks what later receives write as not read soon: copies of this process bypass the caches
  // (base/os/streaming_copy.hpp). The mark stays when the request is used again.
  void set_non_temporal(bool is_non_temporal) noexcept { is_non_temporal_ = is_non_temporal; }
  // Returns: bytes moved so far. After a receive that is ok or has failed with kMismatch, the
  // length of the message.
  uint64_t bytes() const noexcept { return moved_; }
  // Returns: whether the message of a receive was announced, or some of it has arrived.
  bool has_begun() const noexcept {
    return kind_ == Kind::kReceive && (is_announced_ || moved_ > 0);
  }
  // Returns: whether the peer sees this send before it sees what is sent from now on.
  bool is_announced() const noexcept { return is_done() || is_announced_ || moved_ > 0; }
  // Returns: the operation's tag; for a receive that failed with kMismatch, the tag of the message.
  uint32_t tag() const noexcept { return key_; }

 private:
  friend class PeerProtocol;
  friend class MessageProtocol;
  friend class OneSidedProtocol;
  friend class FramedTransport;
  friend class SendQueue;

  enum class Kind : uint8_t { kSend, kReceive, kPut, kGet, kReply, kFlush };

  void start(Kind kind, int peer) noexcept;
  void finish() noexcept;
  void finish(Errc error) noexcept;
  bool is_remotely_readable() const noexcept { return validity_words_ != nullptr; }
  void end_remote_read(bool keeps_word = false) noexcept;

  bool is_pending_ = false, has_failed_ = false;
  // Of a send: the peer knows its length; of a receive: this rank knows it.
  bool is_announced_ = false;
  // The receiver has memory for all of it.
  bool is_cleared_ = false;
  // Of a send: the receive is too small, or has another tag.
  bool is_mismatched_ = false;
  // Of a receive: the message moves by copy-in/copy-out, though a remote read was possible.
  bool uses_copy_in_out_ = false;
  // Of a receive: the path was chosen.
  bool is_path_chosen_ = false;
  // Of a receive whose path was chosen: the peer receives something, too. Of a large send: a
  // receive was posted since the last large send.
  bool is_two_way_ = false;
  // See set_non_temporal().
  bool is_non_temporal_ = false;
  // Of a receive whose path was chosen: its time is measured.
  bool is_timed_ = false;
  Kind kind_ = Kind::kSend;
  Errc error_ = Errc::kInternal;
  int peer_ = -1;
  uint32_t stream_ = 0, sequence_ = 0, key_ = 0;
  // Frames in the connection that point into the request's memory.
  uint32_t frames_in_use_ = 0;
  uint32_t slot_ = 0;  // in `validity_words_`
  // Set while the receiver may read the message remotely.
  ReadValidityWords* validity_words_ = nullptr;
  // `size_` of a receive is its capacity until the message's length is known.
  uint64_t size_ = 0, moved_ = 0;
  // Of a put or get: where in the remote region. Of a send: the receive's capacity. Of a flush: the
  // number of puts and signals before it.
  uint64_t offset_ = 0;
  // Of a receive whose path was chosen: the size for which it was chosen.
  uint64_t announced_bytes_ = 0;
  // Of a receive: large messages that were sent to the peer before it was posted.
  uint64_t sends_before_ = 0;
  // When a timed request began; zero if it is not timed.
  std::chrono::steady_clock::time_point began_{};
  // Of a timed receive: time in copies so far.
  std::chrono::nanoseconds copied_{};
  ReceiveSink* sink_ = nullptr;
  // Pieces; for a single piece one of the two members below.
  std::span<const ConstBytes> from_;
  std::span<const Bytes> into_;
  ConstBytes one_from_;
  Bytes one_into_;
  size_t piece_ = 0, in_piece_ = 0;  // where `from_` continues
};

inline void Request::start(Kind kind, int peer) noexcept {
  TC_CHECK(!is_pending_);
  is_pending_ = true;
  has_failed_ = is_announced_ = is_cleared_ = is_mismatched_ = uses_copy_in_out_ = is_path_chosen_ =
      is_two_way_ = is_timed_ = false;
  kind_ = kind;
  peer_ = peer;
  frames_in_use_ = 0;
  size_ = moved_ = offset_ = 0;
  began_ = {};
  copied_ = {};
  sink_ = nullptr;
  from_ = {};
  into_ = {};
  piece_ = in_piece_ = 0;
}

// `keeps_word`: the receiver has read the message, so its word need not change.
inline void Request::end_remote_read(bool keeps_word) noexcept {
  if (!is_remotely_readable()) return;
  keeps_word ? validity_words_->release(slot_) : validity_words_->invalidate(slot_);
  validity_words_ = nullptr;
}

inline void Request::finish() noexcept {
  end_remote_read();
  is_pending_ = false;
}

inline void Request::finish(Errc error) noexcept {
  end_remote_read();
  is_pending_ = false;
  has_failed_ = true;
  error_ = error;
}

}  // namespace torch::comms::transport
