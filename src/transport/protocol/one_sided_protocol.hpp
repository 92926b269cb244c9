#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>

#include "transport/protocol/region_table.hpp"
#include "transport/protocol/send_queue.hpp"

namespace torch::comms::transport {

// Puts, gets, signals and flushes as frames, for memory that cannot be reached directly: its owner
// does the copying in its progress_engine().
//
// Lanes are not ordered among each other, so puts carry the number of the signal or flush that
// comes after them, which says how many bytes they are, and is held back until those have arrived:
// bytes of later puts do not count. A put into memory that is not open (any more) counts as arrived
// and makes the next flush fail.
//
// Every on_...() takes a frame that came; it returns nullptr, or why the peer cannot have meant it.
class OneSidedProtocol {
 public:
  OneSidedProtocol(SendQueue& out, const RegionTable& regions) : out_(out), regions_(regions) {}

  void put(Request& request);
  void get(Request& request);
  void signal(const MemoryHandle& to, uint64_t offset, uint64_t amount, CounterOp op);
  void flush(Request& request);
  // Ends a put or flush that is not done: its memory is free.
  void cancel(Request& request, Errc error);
  // Goes on with a put or an answer of SendQueue::ready; true if that may forget it.
  bool push(Request& request, bool& moved);
  void finish_replies() noexcept;
  // Answers that read from `range` are taken back.
  void cancel_reads(ConstBytes range);
  void fail(Errc error) noexcept;
  // Something was sent as frames since the last flush: what is done directly could overtake it.
  bool has_unflushed() const noexcept { return sent_ != flushed_; }

  Bytes put_target(const Frame& frame) noexcept;
  Bytes get_reply_target(const Frame& frame) noexcept;
  const char* on_put(const Frame& frame, ConstBytes payload);
  const char* on_signal(const Frame& frame, ConstBytes payload);
  const char* on_flush(const Frame& frame, ConstBytes payload);
  const char* on_flush_ack(const Frame& frame);
  const char* on_put_skipped(const Frame& frame);
  const char* on_get(const Frame& frame, ConstBytes payload);
  const char* on_get_reply(const Frame& frame, ConstBytes payload);
  const char* on_get_nack(const Frame& frame);

 private:
  struct DeferredSignal {
    Frame frame;
    SignalFrame signal;  // of a flush: `after` alone
  };
  // A signal or flush is sent: the bytes put since the one before.
  uint64_t close_puts() noexcept;
  const char* defer(const DeferredSignal& held);
  const char* on_put_arrived(uint32_t number, uint64_t size_bytes);
  const char* release();
  void apply(const DeferredSignal& held);

  SendQueue& out_;
  const RegionTable& regions_;
  uint32_t marks_ = 0;      // signals and flushes that were sent
  uint64_t put_bytes_ = 0;  // since the last of them
  uint32_t applied_ = 0;    // those of the peer
  std::deque<uint64_t>
      arrived_;  // bytes of puts before the next one of the peer, and before later ones
  uint64_t refused_ = 0;
  uint32_t next_ = 0;                // number of the next get or flush
  uint64_t sent_ = 0, flushed_ = 0;  // puts and signals
  std::unordered_map<uint32_t, Request*> gets_;
  std::unordered_map<uint32_t, Request*> flushes_;  // nullptr: it has ended before its answer
  std::deque<DeferredSignal> deferred_;
  std::list<Request> replies_;
};

}  // namespace torch::comms::transport
