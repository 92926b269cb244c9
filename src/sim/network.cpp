#include "sim/network.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace torch::comms::sim {
namespace {

// The finalizer of SplitMix64 [Steele, Lea & Flood, OOPSLA 2014].
uint64_t mixed(uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Draws a number in [0, 1) that depends only on the arguments.
double draw(uint64_t seed, int from, int to, uint64_t number) noexcept {
  uint64_t x = mixed(seed + 0x9e3779b97f4a7c15u);
  x = mixed(x ^
            (static_cast<uint64_t>(static_cast<uint32_t>(from)) << 32 | static_cast<uint32_t>(to)));
  return static_cast<double>(mixed(x ^ number) >> 11) * 0x1.0p-53;
}

constexpr int kMaxRetries = 15;  // Linux' tcp_retries2

}  // namespace

void validate(const Network& network) {
  const auto require = [](bool right, const std::string& what) {
    if (!right) throw std::invalid_argument(what);
  };
  require(network.local_size >= 1, "a host must have at least one rank");
  require(network.rails >= 0,
          "the number of rails is " + std::to_string(network.rails) + "; it must not be negative");
  require(network.hosts_per_leaf >= 0, "the number of hosts per leaf must not be negative");
  require(int64_t{network.local_size} * network.hosts_per_leaf <= std::numeric_limits<int>::max(),
          "a leaf may have at most " + std::to_string(std::numeric_limits<int>::max()) + " ranks");
  require(network.oversubscription >= 1, "the oversubscription must be at least 1");
  for (const LogGPParameters* wire : {&network.between, &network.inside})
    require(
        wire->latency_us >= 0 && wire->overhead_us >= 0 && wire->gap_us >= 0 && wire->byte_ns >= 0,
        "costs of a message must not be negative");
  require(network.spine_us >= 0 && network.compute_ns >= 0, "costs must not be negative");
}

Ticks NetworkFaults::delay_of(int from, int to, uint64_t number,
                              double first_retry_us) const noexcept {
  Ticks late = 0;
  double wait_us = first_retry_us;
  for (int i = 0; i < kMaxRetries && drop > 0; ++i, wait_us *= 2) {
    if (draw(seed + static_cast<uint64_t>(i), from, to, number) >= drop) break;
    late = after(late, from_us(wait_us));
  }
  if (delay > 0 && draw(~seed, from, to, number) < delay) late = after(late, from_us(delay_us));
  return late;
}

Fabric::LogGPTicks::LogGPTicks(const LogGPParameters& wire)
    : latency(from_us(wire.latency_us)),
      overhead(from_us(wire.overhead_us)),
      gap(from_us(wire.gap_us)),
      byte(wire.byte_ns * 1e3) {}

Ticks Fabric::LogGPTicks::serial(int64_t bytes) const noexcept {
  return bytes > 1 ? from_ps(static_cast<double>(bytes - 1) * byte) : 0;
}

Fabric::Fabric(const Network& network, int tracked)
    : network_(network),
      between_(network.between),
      inside_(network.inside),
      spine_(from_us(network.spine_us)),
      share_(network.hosts_per_leaf > 0
                 ? network.oversubscription /
                       (static_cast<double>(network.hosts_per_leaf) *
                        (network.rails > 0 ? network.rails : network.local_size))
                 : 0),
      tracked_(tracked),
      rails_(network.rails > 0 ? std::min(network.rails, network.local_size) : network.local_size) {
  const auto hosts = static_cast<size_t>((tracked + network.local_size - 1) / network.local_size);
  sending_.resize(hosts * static_cast<size_t>(rails_));
  receiving_.resize(sending_.size());
  giving_.resize(network.local_size > 1 ? static_cast<size_t>(tracked) : 0);
  taking_.resize(giving_.size());
  if (network.hosts_per_leaf > 0) {
    up_.resize(hosts / static_cast<size_t>(network.hosts_per_leaf) + 1);
    down_.resize(up_.size());
  }
}

Fabric::NetworkPath Fabric::path(int from, int to) const noexcept {
  const int a = from / network_.local_size, b = to / network_.local_size;
  if (a == b) return NetworkPath::kHost;
  if (network_.hosts_per_leaf == 0) return NetworkPath::kLeaf;
  return a / network_.hosts_per_leaf == b / network_.hosts_per_leaf ? NetworkPath::kLeaf
                                                                    : NetworkPath::kSpine;
}

size_t Fabric::host(int rank) const noexcept {
  return static_cast<size_t>(rank % tracked_ / network_.local_size);
}
size_t Fabric::nic(int rank) const noexcept {
  const int local = rank % network_.local_size;
  return host(rank) * static_cast<size_t>(rails_) + static_cast<size_t>(local % rails_);
}
size_t Fabric::leaf(int rank) const noexcept {
  return host(rank) / static_cast<size_t>(network_.hosts_per_leaf);
}

// Models parallel uplinks as one: a message takes its share of their time and waits for its turn,
// but is not faster than its NIC.
Ticks Fabric::shared(Ticks& free, Ticks from, Ticks serial) const noexcept {
  const Ticks start = std::max(free, from);
  free = after(start, from_ps(static_cast<double>(serial) * share_));
  return start;
}

Fabric::SendTimes Fabric::send(int from, NetworkPath way, int64_t bytes, Ticks ready) {
  const LogGPTicks& cost = costs(way);
  Ticks& free = way == NetworkPath::kHost ? giving_[static_cast<size_t>(from % tracked_)]
                                          : sending_[nic(from)];
  const Ticks start = std::max(ready, free), serial = cost.serial(bytes);
  free = after(start + serial, cost.gap);
  Ticks at_peer = start + cost.latency;
  if (way == NetworkPath::kSpine)
    at_peer = shared(up_[leaf(from)], start, serial) + cost.latency + spine_;
  return {start + serial, at_peer};
}

Ticks Fabric::receive(int to, NetworkPath way, int64_t bytes, Ticks at_peer) {
  const LogGPTicks& cost = costs(way);
  Ticks& free =
      way == NetworkPath::kHost ? taking_[static_cast<size_t>(to % tracked_)] : receiving_[nic(to)];
  const Ticks serial = cost.serial(bytes);
  if (way == NetworkPath::kSpine) at_peer = shared(down_[leaf(to)], at_peer, serial);
  const Ticks end = std::max(at_peer, free) + serial;
  free = after(end, cost.gap);
  return end;
}

size_t Fabric::bytes() const noexcept {
  return sizeof(Ticks) * (sending_.capacity() + receiving_.capacity() + giving_.capacity() +
                          taking_.capacity() + up_.capacity() + down_.capacity());
}

}  // namespace torch::comms::sim
