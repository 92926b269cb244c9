#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>

#include "transport/protocol/region_table.hpp"
#include "transport/protocol/send_queue.hpp"

namespace torch::comms::transport {

// Carries puts, gets, signals and flushes as frames, for memory that cannot be reached directly.
// The owner of the memory copies the data in its progress().
//
// Channels are not ordered among each other. So a put carries the number of the next signal or
// flush, which carries how many bytes of puts precede it. The receiver holds a signal or flush back
// until these bytes have arrived; bytes of later puts do not count. A put into memory that is not
// open counts as arrived and makes the next flush fail.
//
// Every on_...() takes a received frame. It returns nullptr, or why the frame breaks the protocol.
class OneSidedProtocol {
 public:
  OneSidedProtocol(SendQueue& out, const RegionTable& regions) : out_(out), regions_(regions) {}

  void put(Request& request);
  void get(Request& request);
  void signal(const MemoryHandle& to, uint64_t offset, uint64_t amount, CounterOp op);
  void flush(Request& request);
  // Ends a put or flush that is not done; its memory is free when this returns.
  void cancel(Request& request, Errc error);
  // Continues a put or a reply of SendQueue::ready.
  // Returns: true if the queue may remove the request.
  bool push(Request& request, bool& moved);
  void finish_replies() noexcept;
  // Withdraws replies that read from `range`.
  void cancel_reads(ConstBytes range);
  void fail(Errc error) noexcept;
  // Returns: whether a put or signal was sent as frames since the last flush. A direct operation
  // could overtake it.
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
    SignalFrame signal;  // a flush uses only `after`
  };
  // Counts a signal or flush that is about to be sent.
  // Returns: the bytes of puts since the previous one.
  uint64_t close_puts() noexcept;
  const char* defer(const DeferredSignal& deferred);
  const char* on_put_arrived(uint32_t number, uint64_t size_bytes);
  const char* release();
  void apply(const DeferredSignal& deferred);

  SendQueue& out_;
  const RegionTable& regions_;
  uint32_t put_epoch_ = 0;  // signals and flushes that this rank has sent
  uint64_t put_bytes_ = 0;  // bytes since the last of them
  uint32_t applied_ = 0;    // signals and flushes of the peer that took effect
  // Bytes of the peer's puts that have arrived, by the signal or flush that follows them; the first
  // entry is for number `applied_`.
  std::deque<uint64_t> arrived_;
  // Operations of the peer that were refused since the last kFlushAck.
  uint64_t refused_ = 0;
  uint32_t next_ = 0;                // number of the next get or flush
  uint64_t sent_ = 0, flushed_ = 0;  // puts and signals as frames
  std::unordered_map<uint32_t, Request*> gets_;
  std::unordered_map<uint32_t, Request*> flushes_;  // nullptr: cancelled before its answer
  std::deque<DeferredSignal> deferred_;
  std::list<Request> replies_;
};

}  // namespace torch::comms::transport
