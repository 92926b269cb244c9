#include "backends/nccl/api/sharded_relay.hpp"

#include <algorithm>

namespace torch::comms::nccl::relay {
namespace {

int64_t place(size_t index, int64_t count) { return static_cast<int64_t>(index) * count; }

// Returns: every rank as a destination, with the same output offset.
std::vector<RelayTransfer::RelayDestination> all_destinations(const std::vector<int>& ranks,
                                                              int64_t output_offset) {
  std::vector<RelayTransfer::RelayDestination> all;
  all.reserve(ranks.size());
  for (const int rank : ranks) all.push_back({rank, output_offset});
  return all;
}

}  // namespace

bool RelayTransfer::has_source(int rank) const noexcept {
  return std::find(sources.begin(), sources.end(), rank) != sources.end();
}

const RelayTransfer::RelayDestination* RelayTransfer::destination(int rank) const noexcept {
  const auto found = std::find_if(destinations.begin(), destinations.end(),
                                  [rank](const auto& each) { return each.rank == rank; });
  return found == destinations.end() ? nullptr : &*found;
}

std::vector<RelayTransfer> all_reduce(const std::vector<int>& ranks, int64_t count) {
  return {{count, 0, ranks, all_destinations(ranks, 0)}};
}

std::vector<RelayTransfer> reduce_scatter(const std::vector<int>& ranks, int64_t count) {
  std::vector<RelayTransfer> transfers;
  transfers.reserve(ranks.size());
  for (size_t to = 0; to < ranks.size(); ++to)
    transfers.push_back({count, place(to, count), ranks, {{ranks[to], 0}}});
  return transfers;
}

std::vector<RelayTransfer> all_to_all(const std::vector<int>& ranks, int64_t count) {
  std::vector<RelayTransfer> transfers;
  transfers.reserve(ranks.size() * ranks.size());
  for (size_t from = 0; from < ranks.size(); ++from)
    for (size_t to = 0; to < ranks.size(); ++to)
      transfers.push_back(
          {count, place(to, count), {ranks[from]}, {{ranks[to], place(from, count)}}});
  return transfers;
}

std::vector<RelayTransfer> all_gather(const std::vector<int>& ranks, int64_t count) {
  std::vector<RelayTransfer> transfers;
  transfers.reserve(ranks.size());
  for (size_t from = 0; from < ranks.size(); ++from)
    transfers.push_back({count, 0, {ranks[from]}, all_destinations(ranks, place(from, count))});
  return transfers;
}

RelayShard shard_of(const RelayTransfer& transfer, int relay_rank, int size) {
  const auto begin = [&](int rank) {
    return transfer.count / size * rank + std::min<int64_t>(rank, transfer.count % size);
  };
  return {begin(relay_rank), begin(relay_rank + 1) - begin(relay_rank)};
}

}  // namespace torch::comms::nccl::relay
