#pragma once

#include <cstdint>
#include <vector>

#include "sim/event_queue.hpp"

namespace torch::comms::sim {

// What a message costs [LogGP: Alexandrov, Ionescu, Schauser & Scheiman, SPAA 1995]. A message of k
// bytes between idle ranks takes overhead + (k - 1) * byte + latency + overhead.
struct LogGPParameters {
  double latency_us = 0;
  double overhead_us = 0;  // of the processor, at either end
  double gap_us = 0;       // between two messages of one NIC
  double byte_ns = 0;      // 0.02: 50 GB/s
};

// Hosts of `local_size` ranks, rank r on host r / local_size, under a fat tree of two levels.
struct Network {
  LogGPParameters between = {2.0, 0.3, 0.1, 0.02};  // of hosts
  LogGPParameters inside = {0.4, 0.1, 0.05, 0.01};  // a host; every rank has a port of its own
  int local_size = 1;
  int rails = 0;           // NICs of a host, rank r uses NIC r % rails; 0: one a rank
  int hosts_per_leaf = 0;  // under one switch; 0: all hosts
  // Of the leaves: 1: the uplinks carry what the hosts can send, 2: half of that.
  double oversubscription = 1;
  double spine_us = 0.6;     // more latency from leaf to leaf
  double compute_ns = 0.01;  // for each byte that is added or copied

  // Ranks after which everything repeats: those of a leaf, or of a host.
  int period() const noexcept { return local_size * (hosts_per_leaf > 0 ? hosts_per_leaf : 1); }
};
// Throws std::invalid_argument naming what cannot be.
void validate(const Network& network);

// What goes wrong on the way. Whether a message is met by it depends on the seed and on who sends
// which message alone: so more of it never spares a message that less of it met.
struct NetworkFaults {
  uint64_t seed = 1;
  double drop = 0;            // 0.01: one message in a hundred is lost, and sent again after
  double retry_us = 200'000;  // as TCP does, then twice as long, and so on
  double delay = 0;           // so many messages come later by
  double delay_us = 10'000;

  bool has_any() const noexcept { return drop > 0 || delay > 0; }
  // How much later message `number` of `from` to `to` comes.
  Ticks delay_of(int from, int to, uint64_t number, double first_retry_us) const noexcept;
  Ticks lateness(int from, int to, uint64_t number) const noexcept {
    return delay_of(from, to, number, retry_us);
  }
};

// The wires of a run: NICs and uplinks serve one message after the other, in the order of time.
class Fabric {
 public:
  // Ranks `tracked` apart share their place: where all of them do the same, one stands for them.
  Fabric(const Network& network, int tracked);

  enum class NetworkPath : uint8_t { kHost, kLeaf, kSpine };  // how far a message goes
  NetworkPath path(int from, int to) const noexcept;
  Ticks overhead(NetworkPath way) const noexcept {
    return way == NetworkPath::kHost ? inside_.overhead : between_.overhead;
  }

  struct SendTimes {
    Ticks released;  // the memory may be used again
    Ticks at_peer;   // the first byte reaches the receiver's NIC
  };
  SendTimes send(int from, NetworkPath way, int64_t bytes, Ticks ready);
  // When all of a message that reached the NIC of `to` at `at_peer` is there. Calls are in the
  // order of `at_peer`.
  Ticks receive(int to, NetworkPath way, int64_t bytes, Ticks at_peer);

  size_t bytes() const noexcept;

 private:
  struct LogGPTicks {
    explicit LogGPTicks(const LogGPParameters& wire);
    Ticks latency, overhead, gap;
    double byte;
    Ticks serial(int64_t bytes) const noexcept;
  };
  const LogGPTicks& costs(NetworkPath way) const noexcept {
    return way == NetworkPath::kHost ? inside_ : between_;
  }
  size_t host(int rank) const noexcept;
  size_t nic(int rank) const noexcept;
  size_t leaf(int rank) const noexcept;
  Ticks shared(Ticks& free, Ticks from, Ticks serial) const noexcept;

  Network network_;
  LogGPTicks between_, inside_;
  Ticks spine_;
  double share_;  // of an uplink that one message takes
  int tracked_, rails_;
  std::vector<Ticks> sending_, receiving_;  // NICs: free from then on
  std::vector<Ticks> giving_, taking_;      // the ports inside hosts
  std::vector<Ticks> up_, down_;            // leaves
};

}  // namespace torch::comms::sim
