#include "ctran/hierarchical/host_topology.hpp"

#include <algorithm>
#include <map>

namespace torch::comms::ctran {

bool HostTopology::has_equal_hosts() const noexcept {
  return std::ranges::all_of(
      ranks, [this](const auto& one) { return static_cast<int>(one.size()) == rails; });
}

bool HostTopology::is_host_major() const noexcept {
  int next = 0;
  return std::ranges::all_of(ranks, [&next](const auto& one) {
    return std::ranges::all_of(one, [&next](int rank) { return rank == next++; });
  });
}

std::vector<int> HostTopology::rail(int index) const {
  std::vector<int> members;
  members.reserve(ranks.size());
  for (const auto& one : ranks) members.push_back(one[static_cast<size_t>(index)]);
  return members;
}

HostTopology make_host_topology(std::span<const int> host_of) {
  HostTopology hosts;
  std::map<int, size_t> numbers;
  for (size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto host = numbers.try_emplace(host_of[rank], numbers.size()).first->second;
    if (host == hosts.ranks.size()) hosts.ranks.emplace_back();
    auto& here = hosts.ranks[host];
    hosts.host_ranks.push_back({static_cast<int>(host), static_cast<int>(here.size())});
    here.push_back(static_cast<int>(rank));
  }
  const auto fewest = std::ranges::min_element(hosts.ranks, {}, &std::vector<int>::size);
  if (fewest != hosts.ranks.end()) hosts.rails = static_cast<int>(fewest->size());
  return hosts;
}

}  // namespace torch::comms::ctran
