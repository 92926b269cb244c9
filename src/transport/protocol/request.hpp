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

// Takes a message's bytes where they arrive, instead of a copy of them: how a received chunk is
// reduced without a buffer of its own.
class ReceiveSink {
 public:
  virtual ~ReceiveSink() = default;
  // Every byte of the message is handed over once, in chunks of any order. A chunk begins and ends
  // at a multiple of 64 bytes, at an end of one of the sender's pieces, or at the message's end: it
  // cuts no element. `chunk` is valid during the call. Called inside the transport's
  // progress_engine().
  virtual void consume(uint64_t offset, ConstBytes chunk) noexcept = 0;
};

// Where a message goes that is taken at once: to memory of its size, or to a consumer.
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

// One operation in flight. It belongs to the caller, who neither moves nor destroys it, nor touches
// the operation's memory, before is_done(). It may be used again after that.
//
// Threads: as the transport it was given to; it only changes inside that transport's calls.
class Request {
 public:
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // True before first use, too.
  bool is_done() const noexcept { return !is_pending_; }
  bool is_ok() const noexcept { return is_done() && !has_failed_; }
  // Of a request that is done and not ok. The words are in Transport::failure(peer()).
  Errc error() const noexcept { return error_; }
  int peer() const noexcept { return peer_; }
  // Of receives from now on: what they write is not read soon, and goes past the caches where this
  // process copies it (base/os/streaming_copy.hpp).
  void set_non_temporal(bool pass) noexcept { is_non_temporal_ = pass; }
  // Moved so far; of a finished receive, the length of the message.
  uint64_t bytes() const noexcept { return moved_; }
  // Of a receive: its message was announced, or some of it has come.
  bool has_begun() const noexcept {
    return kind_ == Kind::kReceive && (is_announced_ || moved_ > 0);
  }
  // Of a send: the peer learns of it before it hears what is sent from now on.
  bool is_announced() const noexcept { return is_done() || is_announced_ || moved_ > 0; }
  // The tag it was given; of a receive that failed with kSizeMismatch, that of the message it met.
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
  void end_remote_read(bool taken = false) noexcept;

  bool is_pending_ = false, has_failed_ = false;
  bool is_announced_ = false;      // of a send: the peer knows its length; of a receive: so do we
  bool is_cleared_ = false;        // the receiver has memory for all of it
  bool is_mismatched_ = false;     // of a send: the receive is too small, or has another tag
  bool uses_copy_in_out_ = false;  // of a receive: not fetched, though it might have been
  bool is_path_chosen_ = false;    // of a receive: it is known whether it will be fetched
  bool is_two_way_ = false;        // of such a receive: its peer receives something, too; of a send
                                   // that is not small: a receive was there before it
  bool is_non_temporal_ = false;   // see above
  bool is_timed_ = false;          // of one that will be: how long that takes is looked at
  Kind kind_ = Kind::kSend;
  Errc error_ = Errc::kInternal;
  int peer_ = -1;
  uint32_t stream_ = 0, sequence_ = 0, key_ = 0;
  uint32_t frames_in_use_ = 0;                   // frames in the channel that point into our memory
  uint32_t slot_ = 0;                            // of the words below
  ReadValidityWords* validity_words_ = nullptr;  // while its receiver may copy the message
  uint64_t size_ = 0, moved_ = 0;                // of a receive: capacity until its length is known
  uint64_t offset_ = 0;                          // of one-sided operations, in the remote region
  uint64_t announced_bytes_ = 0;  // of one that is chosen: the size that was asked for
  uint64_t sends_before_ = 0;     // of a receive: those to its peer that were not small
  std::chrono::steady_clock::time_point began_{};  // of one that is timed; else zero
  std::chrono::nanoseconds copied_{};              // of such a receive: in copies, so far
  ReceiveSink* sink_ = nullptr;
  std::span<const ConstBytes> from_;  // pieces; one of the two below where there is one piece
  std::span<const Bytes> into_;
  ConstBytes one_from_;
  Bytes one_into_;
  size_t piece_ = 0, in_piece_ = 0;  // where `from_` goes on
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

// `taken`: its receiver has said so.
inline void Request::end_remote_read(bool taken) noexcept {
  if (!is_remotely_readable()) return;
  taken ? validity_words_->release(slot_) : validity_words_->invalidate(slot_);
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
