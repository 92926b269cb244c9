#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/os/handles.hpp"
#include "base/os/secret.hpp"

namespace torch::comms::transport::nvl {

// An AllGatherStrings over Unix sockets between the ranks of one host. Each rank runs it on a
// thread of its own, so that ranks can agree while the threads that call operations do something
// else.
//
// Threads: wake() and stop() any; all other functions one thread.
class UnixAllGather {
 public:
  // Throws: CommError(kResourceExhausted, kSystem).
  UnixAllGather(int rank, int size);

  // address() returns how peers reach this rank. set_addresses() takes the addresses of all ranks,
  // by rank, and must be called before any other communication.
  // Throws: CommError(kSystem) for an invalid address.
  std::string address() const;
  void set_addresses(const std::vector<std::string>& addresses);

  // Waits for an event: a peer is in the next round, or wake() or stop() was called. It may also
  // return without an event.
  void wait();
  bool is_round_started() const noexcept;  // a peer is in the next round
  bool is_stopped() const noexcept { return is_stopped_.load(std::memory_order_acquire); }
  // Runs the next round as an AllGatherStrings. After an exception no later round can complete.
  // Throws: CommError(kPeerFailed) if a rank has ended or left before the round; kAborted after
  // stop().
  std::vector<std::string> all_gather(const std::string& text);

  // Closes the sockets after the last round. Packets that peers have not read yet are not lost.
  void close() noexcept;
  // Announces that this rank takes part in no more rounds, because rank `failed_rank` has ended;
  // -1: because this rank ends.
  void announce_leave(int failed_rank) noexcept;

  void wake() noexcept;
  void stop() noexcept;

 private:
  struct AllGatherAddress;
  struct AllGatherPacket;
  struct AcceptedSocket {
    base::FileDescriptor socket;
    int rank = -1;  // known from its first packet on; -1: unknown
  };
  struct AllGatherPeer {
    std::string name;
    base::Secret secret = {};
    base::FileDescriptor socket;    // connected to the peer; empty: not connected
    std::deque<std::string> texts;  // of rounds that this rank has not completed
    uint64_t rounds = 0;            // rounds that have arrived from the peer
    bool has_left = false;
  };
  // Sends `text` to `rank`. Only `round` and `failed_rank` of `packet` are used; the other fields
  // are set here.
  void send(int rank, AllGatherPacket packet, const std::string& text);
  bool is_round_incomplete() const;
  AllGatherPeer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  const AllGatherPeer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }
  template <class Body>
  void for_peers(Body body) const {
    for (int rank = 0; rank < size_; ++rank)
      if (rank != rank_) body(rank);
  }
  enum class PacketOutcome : uint8_t { kNothing, kText, kEnd };
  bool receive_all();
  bool accept_one();
  PacketOutcome read(AcceptedSocket& accepted);

  const int rank_, size_;
  const std::string name_;
  const base::Secret secret_;
  base::FileDescriptor listener_;
  const base::FileDescriptor wakeup_event_;
  std::vector<AllGatherPeer> peers_;  // by rank
  std::vector<AcceptedSocket> accepted_;
  uint64_t round_ = 0;
  int failed_rank_ = -1;  // the rank that has ended, as a peer announced
  std::atomic<bool> is_stopped_ = false;
};

}  // namespace torch::comms::transport::nvl
