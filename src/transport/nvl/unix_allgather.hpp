#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/os/handles.hpp"
#include "base/os/secret.hpp"

namespace torch::comms::transport::nvl {

// The ranks of one host tell each other words over Unix sockets, on a thread of each that does
// nothing else: an AllGatherStrings for what may become necessary while the threads that call
// operations are anywhere.
//
// Threads: wake() and abort_for_reconfigure() any; all else one.
class UnixAllGather {
 public:
  // Throws CommError(kResourceExhausted, kSystem).
  UnixAllGather(int rank, int size);

  // How the others reach this rank, and how it reaches them: words of all, by rank, before anything
  // else. Throws CommError(kSystem) for those that are none.
  std::string address() const;
  void set_addresses(const std::vector<std::string>& addresses);

  // Waits until something happens: another rank is in the next round, or wake() or
  // abort_for_reconfigure() was called, or nothing of that.
  void wait();
  bool is_round_started() const noexcept;  // another rank is in the next round
  bool is_stopped() const noexcept { return is_stopped_.load(std::memory_order_acquire); }
  // The next round: as an AllGatherStrings. Throws CommError(kPeerFailed) for a rank that has ended
  // or left before, kAborted after abort_for_reconfigure(). Then no round can be whole any more.
  std::vector<std::string> all_gather(const std::string& words);

  // After the last round of all: gives descriptors back. What others have not read yet stays.
  void close() noexcept;
  // The others need not wait for this rank, since `missed` has ended; -1: since this one has.
  void announce_leave(int missed) noexcept;

  void wake() noexcept;
  void stop() noexcept;

 private:
  struct AllGatherAddress;
  struct AllGatherPacket;
  struct AcceptedSocket {
    base::FileDescriptor socket;
    int rank = -1;  // known from its first packet on
  };
  struct AllGatherPeer {
    std::string name;
    base::Secret secret = {};
    base::FileDescriptor socket;    // to it
    std::deque<std::string> texts;  // of rounds that are not over here
    uint64_t rounds = 0;            // that have come from it
    bool has_left = false;
  };
  // The words are the packet's; all else of it but `round` and `missed`, too.
  void send(int rank, AllGatherPacket packet, const std::string& words);
  bool is_round_incomplete() const;
  AllGatherPeer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  const AllGatherPeer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }
  template <class Of>
  void for_peers(Of of) const {
    for (int rank = 0; rank < size_; ++rank)
      if (rank != rank_) of(rank);
  }
  enum class PacketOutcome : uint8_t { kNothing, kText, kEnd };
  bool receive_all();
  bool accept_one();
  PacketOutcome read(AcceptedSocket& guest);

  const int rank_, size_;
  const std::string name_;
  const base::Secret secret_;
  base::FileDescriptor listener_;
  const base::FileDescriptor wakeup_event_;
  std::vector<AllGatherPeer> peers_;  // by rank
  std::vector<AcceptedSocket> accepted_;
  uint64_t round_ = 0;
  int failed_rank_ = -1;  // who has ended, by what another rank says
  std::atomic<bool> is_stopped_ = false;
};

}  // namespace torch::comms::transport::nvl
