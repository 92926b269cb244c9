#pragma once

#include <algorithm>
#include <vector>

// Which ranks have a monitor connection. Each rank is connected with its parent and children in a
// binary tree, and with its two neighbors in a ring of all ranks: at most five connections. The
// tree makes every path O(log size) long. If a rank fails, the ring reconnects the tree, because
// ranks below the failed rank are ring neighbors of ranks that are not below it.
namespace torch::comms::monitor {

inline int overlay_parent(int rank) noexcept { return rank == 0 ? -1 : (rank - 1) / 2; }

inline std::vector<int> overlay_children(int rank, int size) {
  std::vector<int> children;
  for (const int child : {2 * rank + 1, 2 * rank + 2})
    if (child < size) children.push_back(child);
  return children;
}

// Returns the neighbors of `rank`, ascending, without itself.
inline std::vector<int> overlay_neighbors(int rank, int size) {
  auto all = overlay_children(rank, size);
  if (rank > 0) all.push_back(overlay_parent(rank));
  all.push_back((rank + 1) % size);
  all.push_back((rank + size - 1) % size);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::erase(all, rank);
  return all;
}

}  // namespace torch::comms::monitor
