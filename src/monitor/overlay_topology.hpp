#pragma once

#include <algorithm>
#include <vector>

// Who has a connection to whom: parent and children in a binary tree of all ranks, and those before
// and after in their ring, five at most. The tree makes every way a logarithm of the size long; the
// ring joins what a lost rank leaves of it, because what hangs below one is beside what does not.
namespace torch::comms::monitor {

inline int overlay_parent(int rank) noexcept { return rank == 0 ? -1 : (rank - 1) / 2; }

inline std::vector<int> overlay_children(int rank, int size) {
  std::vector<int> children;
  for (const int child : {2 * rank + 1, 2 * rank + 2})
    if (child < size) children.push_back(child);
  return children;
}

// Ascending, without the rank itself.
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
