#pragma once

#include <cstdint>
#include <vector>

// The plans of collectives of groups of ranks in which all ranks of the communicator relay data. A
// rank of a small group has links to all ranks, but an ordinary collective uses only those inside
// the group. Here each piece of data is cut into as many shards as there are ranks. Each shard goes
// to its relay rank, and from there to its destinations. So with `size` ranks each link carries
// 1/size of the data that one direct link would carry.
//
// These are pure functions: they plan transfers and move no data.
namespace torch::comms::nccl::relay {

// A piece of a group's data: `count` elements of each source, from `input_offset` on. They go to
// every destination, to its `output_offset`. If there are several sources, their reduction goes.
struct RelayTransfer {
  int64_t count;
  int64_t input_offset;
  std::vector<int> sources;
  struct RelayDestination {
    int rank;
    int64_t output_offset;
  };
  std::vector<RelayDestination> destinations;

  bool reduces() const noexcept { return sources.size() > 1; }
  // True if nothing is sent: the only source is the only destination.
  bool is_local() const noexcept {
    return sources.size() == 1 && destinations.size() == 1 &&
           sources.front() == destinations.front().rank;
  }
  bool has_source(int rank) const noexcept;
  const RelayDestination* destination(int rank) const noexcept;  // null: the rank is no destination
};

// Return the transfers of one group. `ranks`: the group's ranks in its order. `count`: the elements
// of the tensor (all_reduce), that a rank receives (reduce_scatter), that it sends to each rank
// (all_to_all), or that it contributes (all_gather).
std::vector<RelayTransfer> all_reduce(const std::vector<int>& ranks, int64_t count);
std::vector<RelayTransfer> reduce_scatter(const std::vector<int>& ranks, int64_t count);
std::vector<RelayTransfer> all_to_all(const std::vector<int>& ranks, int64_t count);
std::vector<RelayTransfer> all_gather(const std::vector<int>& ranks, int64_t count);

// The part of a piece that rank `relay_rank` of `size` ranks relays, in elements from the piece's
// start.
struct RelayShard {
  int64_t begin, count;
};
RelayShard shard_of(const RelayTransfer& transfer, int relay_rank, int size);

}  // namespace torch::comms::nccl::relay
