#pragma once

#include <cstdint>
#include <vector>

// Collectives of groups of ranks in which all ranks of the communicator carry data, those outside
// of the group as relays. A rank of a small group has links to all ranks, and uses those to the
// group alone; here each piece of data is cut into as many shards as there are ranks, each goes to
// its carrier, and from there to whom it is for. So of `size` ranks each link takes 1/size of what
// one link between two would.
//
// This is what is moved, without moving it: pure functions.
namespace torch::comms::nccl::relay {

// A piece of a group's data: `count` elements of each source, from `input_offset` on, which go to
// every destination, from its `output_offset` on. Of several sources their reduction goes.
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
  // Nothing travels: the only source is the only destination.
  bool is_local() const noexcept {
    return sources.size() == 1 && destinations.size() == 1 &&
           sources.front() == destinations.front().rank;
  }
  bool has_source(int rank) const noexcept;
  const RelayDestination* destination(int rank) const noexcept;  // null: it is none
};

// `ranks`: of the group, in its order. `count`: elements of all, of what a rank receives, of what
// it sends to each, of what it gives.
std::vector<RelayTransfer> all_reduce(const std::vector<int>& ranks, int64_t count);
std::vector<RelayTransfer> reduce_scatter(const std::vector<int>& ranks, int64_t count);
std::vector<RelayTransfer> all_to_all(const std::vector<int>& ranks, int64_t count);
std::vector<RelayTransfer> all_gather(const std::vector<int>& ranks, int64_t count);

// The part of a piece that `carrier` of `size` ranks has: elements from its beginning.
struct RelayShard {
  int64_t begin, count;
};
RelayShard shard_of(const RelayTransfer& piece, int carrier, int size);

}  // namespace torch::comms::nccl::relay
