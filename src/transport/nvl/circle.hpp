#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/handles.hpp"
#include "base/secret.hpp"

namespace torch::comms::transport::nvl {

// The ranks of one host tell each other words over Unix sockets, on a thread of each that does
// nothing else: an ExchangeProtocol for what may become necessary while the threads that call
// operations are anywhere.
//
// Threads: ring() and stop() any; all else one.
class Circle {
 public:
  // Throws CommError(kResourceExhausted, kSystem).
  Circle(int rank, int size);

  // How the others reach this rank, and how it reaches them: words of all, by rank, before anything
  // else. Throws CommError(kSystem) for those that are none.
  std::string address() const;
  void know(const std::vector<std::string>& addresses);

  // Waits until something happens: another rank is in the next round, or ring() or stop() was
  // called, or nothing of that.
  void await();
  bool is_begun() const noexcept;  // another rank is in the next round
  bool is_stopped() const noexcept { return is_stopped_.load(std::memory_order_acquire); }
  // The next round: as an ExchangeProtocol. Throws CommError(kPeerFailed) for a rank that has ended
  // or left before, kAborted after stop(). Then no round can be whole any more.
  std::vector<std::string> tell(const std::string& words);

  // After the last round of all: gives descriptors back. What others have not read yet stays.
  void close() noexcept;
  // The others need not wait for this rank, since `missed` has ended; -1: since this one has.
  void leave(int missed) noexcept;

  void ring() noexcept;
  void stop() noexcept;

 private:
  struct Address;
  struct Packet;
  struct Guest {
    base::FileDescriptor socket;
    int rank = -1;  // known from its first packet on
  };
  struct Peer {
    std::string name;
    base::Secret secret = {};
    base::FileDescriptor socket;    // to it
    std::deque<std::string> words;  // of rounds that are not over here
    uint64_t rounds = 0;            // that have come from it
    bool has_ended = false;
  };
  // The words are the packet's; all else of it but `round` and `missed`, too.
  void send(int rank, Packet packet, const std::string& words);
  bool lacks_words() const;
  Peer& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }
  const Peer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }
  template <class Of>
  void for_peers(Of of) const {
    for (int rank = 0; rank < size_; ++rank)
      if (rank != rank_) of(rank);
  }
  enum class Heard : uint8_t { kNothing, kWords, kEnd };
  bool hear();
  bool let_in();
  Heard read(Guest& guest);

  const int rank_, size_;
  const std::string name_;
  const base::Secret secret_;
  base::FileDescriptor listener_;
  const base::FileDescriptor bell_;
  std::vector<Peer> peers_;  // by rank
  std::vector<Guest> guests_;
  uint64_t round_ = 0;
  int missed_ = -1;  // who has ended, by what another rank says
  std::atomic<bool> is_stopped_ = false;
};

}  // namespace torch::comms::transport::nvl
