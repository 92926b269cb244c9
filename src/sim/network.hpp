#pragma once

#include <cstdint>
#include <vector>

#include "sim/event_queue.hpp"

namespace torch::comms::sim {

// The cost of a message [LogGP: Alexandrov, Ionescu, Schauser & Scheiman, SPAA 1995]. A message of
// k bytes between idle ranks takes overhead + (k - 1) * byte + latency + overhead.
struct LogGPParameters {
  double latency_us = 0;
  double overhead_us = 0;  // of the processor, at each end
  double gap_us = 0;       // between two messages of one NIC
  double byte_ns = 0;      // 0.02: 50 GB/s
};

// The network: hosts of `local_size` ranks, rank r on host r / local_size, in a fat tree of two
// levels.
struct Network {
  LogGPParameters between = {2.0, 0.3, 0.1, 0.02};  // between hosts
  LogGPParameters inside = {0.4, 0.1, 0.05, 0.01};  // inside a host, one port per rank
  int local_size = 1;
  int rails = 0;           // NICs of a host, rank r uses NIC r % rails; 0: one per rank
  int hosts_per_leaf = 0;  // hosts on one switch; 0: all hosts
  // 1: the uplinks of a leaf carry all that its hosts can send; 2: half of it.
  double oversubscription = 1;
  double spine_us = 0.6;     // extra latency from leaf to leaf
  double compute_ns = 0.01;  // per byte reduced or copied

  // Returns the number of ranks after which the network repeats: those of a leaf, or of a host.
  int period() const noexcept { return local_size * (hosts_per_leaf > 0 ? hosts_per_leaf : 1); }
};
// Throws: std::invalid_argument that names the invalid value.
void validate(const Network& network);

// Random faults of messages. Whether a message has a fault depends only on the seed and on the
// message. So with a higher probability all messages that had a fault before still have one.
struct NetworkFaults {
  uint64_t seed = 1;
  double drop = 0;            // probability that a message is lost and sent again
  double retry_us = 200'000;  // of the first retry; doubles each time, as in TCP
  double delay = 0;           // probability that a message is delayed by delay_us
  double delay_us = 10'000;

  bool has_any() const noexcept { return drop > 0 || delay > 0; }
  // Returns the extra time of message `number` of `from` to `to`.
  Ticks delay_of(int from, int to, uint64_t number, double first_retry_us) const noexcept;
  Ticks lateness(int from, int to, uint64_t number) const noexcept {
    return delay_of(from, to, number, retry_us);
  }
};

// The links of a run: each NIC and uplink serves one message after the other, in the order of time.
class Fabric {
 public:
  // Ranks whose distance is a multiple of `tracked` share their state, for runs in which one
  // represents them all.
  Fabric(const Network& network, int tracked);

  enum class NetworkPath : uint8_t { kHost, kLeaf, kSpine };  // which levels a message crosses
  NetworkPath path(int from, int to) const noexcept;
  Ticks overhead(NetworkPath way) const noexcept {
    return way == NetworkPath::kHost ? inside_.overhead : between_.overhead;
  }

  struct SendTimes {
    Ticks released;  // the sender's buffer may be reused
    Ticks at_peer;   // the first byte reaches the receiver's NIC
  };
  SendTimes send(int from, NetworkPath way, int64_t bytes, Ticks ready);
  // Returns when a message that reached the NIC of `to` at `at_peer` has arrived completely. Call
  // it in the order of `at_peer`.
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
  std::vector<Ticks> sending_, receiving_;  // when each NIC is free
  std::vector<Ticks> giving_, taking_;      // when each port inside a host is free
  std::vector<Ticks> up_, down_;            // when each leaf's uplinks are free
};

}  // namespace torch::comms::sim
