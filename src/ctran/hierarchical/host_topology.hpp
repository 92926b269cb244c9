#pragma once

#include <span>
#include <vector>

namespace torch::comms::ctran {

// The hosts of a communicator's ranks. A HostRank is the index of a rank's host and its local rank
// there.
//
// Rail r consists of one rank of each host, its r-th. Rails carry data between hosts side by side.
// There are as many rails as the smallest host has ranks; the remaining ranks of larger hosts are
// on no rail.
struct HostTopology {
  struct HostRank {
    int host, local_rank;
  };
  std::vector<std::vector<int>> ranks;  // by host, ascending; hosts are ordered by their first rank
  std::vector<HostRank> host_ranks;     // by rank
  int rails = 0;

  int count() const noexcept { return static_cast<int>(ranks.size()); }
  bool has_equal_hosts() const noexcept;  // all hosts have equally many ranks
  // Returns: whether ranks are numbered host by host.
  bool is_host_major() const noexcept;
  // Returns: the ranks of a rail, by host.
  std::vector<int> rail(int index) const;
};

// Groups ranks by host. `host_of` has, by rank, a number that is equal for two ranks exactly if
// they share a host.
HostTopology make_host_topology(std::span<const int> host_of);

}  // namespace torch::comms::ctran
