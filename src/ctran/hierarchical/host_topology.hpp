#pragma once

#include <span>
#include <vector>

namespace torch::comms::ctran {

// Which ranks of a communicator share a host. A rank's place: the number of its host, and its
// number among that one's ranks.
//
// Rail r is one rank of each host: its r-th. Rails carry data between hosts, side by side; there
// are as many as the smallest host has ranks. Elsewhere the further ranks are on no rail.
struct HostTopology {
  struct HostRank {
    int host, local_rank;
  };
  std::vector<std::vector<int>> ranks;  // of each host, ascending; hosts by their first rank
  std::vector<HostRank> host_ranks;     // by rank
  int rails = 0;

  int count() const noexcept { return static_cast<int>(ranks.size()); }
  bool has_equal_hosts() const noexcept;  // in their numbers of ranks
  // Each has ranks that follow each other, host by host.
  bool is_host_major() const noexcept;
  // By host.
  std::vector<int> rail(int index) const;
};

// `host_of`: by rank, any number that is equal for two ranks exactly if they share a host.
HostTopology make_host_topology(std::span<const int> host_of);

}  // namespace torch::comms::ctran
