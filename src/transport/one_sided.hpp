#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>

#include "transport/outbox.hpp"
#include "transport/regions.hpp"

namespace torch::comms::transport {

// Puts, gets, signals and flushes as frames, for memory that cannot be reached directly: its owner
// does the copying in its progress().
//
// Lanes are not ordered among each other, so a signal or flush carries how many bytes were put
// before it, and is held back until they have arrived. A put into memory that is not open (any
// more) counts as arrived and makes the next flush fail.
//
// Every on_...() takes a frame that came; it returns nullptr, or why the peer cannot have meant it.
class OneSided {
 public:
  OneSided(Outbox& out, const Regions& regions) : out_(out), regions_(regions) {}

  void put(Request& request);
  void get(Request& request);
  void signal(const MemoryHandle& to, uint64_t offset, uint64_t amount, SignalOp op);
  void flush(Request& request);
  // Ends a put or flush that is not done: its memory is free.
  void end(Request& request, Errc error);
  // Goes on with a put or an answer of Outbox::ready; true if that may forget it.
  bool push(Request& request, bool& moved);
  void finish_replies() noexcept;
  // Answers that read from `range` are taken back.
  void withdraw(ConstBytes range);
  void fail(Errc error) noexcept;
  // Something was sent as frames since the last flush: what is done directly could overtake it.
  bool unflushed() const noexcept { return sent_ != flushed_; }

  Bytes place_put(const Frame& frame) noexcept;
  Bytes place_got(const Frame& frame) noexcept;
  const char* on_put(const Frame& frame, ConstBytes payload);
  const char* on_signal(const Frame& frame, ConstBytes payload);
  const char* on_flush(const Frame& frame, ConstBytes payload);
  const char* on_flushed(const Frame& frame);
  const char* on_skipped(const Frame& frame);
  const char* on_get(const Frame& frame, ConstBytes payload);
  const char* on_got(const Frame& frame, ConstBytes payload);
  const char* on_get_refused(const Frame& frame);

 private:
  struct Held {
    Frame frame;
    SignalFrame signal;  // of a flush: `after` alone
  };
  const char* hold(const Held& held);
  void release();
  void apply(const Held& held);

  Outbox& out_;
  const Regions& regions_;
  uint64_t put_bytes_ = 0, arrived_ = 0, refused_ = 0;
  uint32_t next_ = 0;                // number of the next get or flush
  uint64_t sent_ = 0, flushed_ = 0;  // puts and signals
  std::unordered_map<uint32_t, Request*> gets_;
  std::unordered_map<uint32_t, Request*> flushes_;  // nullptr: it has ended before its answer
  std::deque<Held> held_;
  std::list<Request> replies_;
};

}  // namespace torch::comms::transport
