#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

// How ranks of the stand-in, threads or processes of one host, reach each other: a block of shared
// memory with a mailbox for every ordered pair of ranks.
namespace torch::comms::standin {

// One message. Sender and receiver agree on kind and size, or both see an error.
struct Transfer {
  int peer;
  bool sends;
  void* data;
  size_t size_bytes;
  uint64_t kind;
};

class Mailboxes {
 public:
  // Waits for all `size` ranks that name the same block. Null when `stop` became true.
  static std::unique_ptr<Mailboxes> join(const std::string& name, int rank, int size,
                                         const std::atomic<bool>& stop);
  ~Mailboxes();
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;

  enum class End { kDone, kStopped, kMismatch };
  // All of them at once; those with one peer in one direction in their order. One thread at a time.
  End run(std::span<const Transfer> transfers, const std::atomic<bool>& stop);

  // One more signal for a rank. Whoever has seen it sees what was written before.
  void signal(int peer);
  // Until there have been `total` signals of it to this rank, from the beginning on.
  End await_signals(int peer, uint64_t total, const std::atomic<bool>& stop);

  // Sleeps until `stop`, or `limit_us` (-1: for ever) have passed.
  void sleep(int64_t limit_us, const std::atomic<bool>& stop);
  // After `stop` was set: those who wait look at it. What is under way in other ranks' run() and
  // await_signals() is done then without what it waits for, as NCCL lets kernels go when one of
  // them is aborted.
  void abandon();
  // Some rank has.
  bool is_abandoned() const;

 private:
  struct Block;
  struct Cursor;
  Mailboxes(std::string name, int rank, int size, Block* block, size_t size_bytes);
  bool step(Cursor& cursor, bool& mismatch);

  const std::string name_;
  const int rank_, size_;
  Block* const block_;
  const size_t size_bytes_;
};

}  // namespace torch::comms::standin
