#include "patterns.hpp"

namespace native {

Part Traffic::part(int source, int receiver) const {
  if (source == receiver) return {0, 0, 0};
  switch (pattern) {
    case Pattern::kSend:
      return {0, 0, source == 0 && receiver == 1 ? count : 0};
    case Pattern::kSendRecv:
      return {0, 0, source == (receiver ^ 1) ? count : 0};
    case Pattern::kAllToAll: {
      const size_t most = count / static_cast<size_t>(ranks);
      const size_t uneven = most - (source + receiver) % 3 * (most / 4);
      return {most * static_cast<size_t>(receiver), most * static_cast<size_t>(source), uneven};
    }
  }
  return {0, 0, 0};
}

std::vector<kernels::KernelMessage> Traffic::messages(int rank, char* input, char* output) const {
  std::vector<kernels::KernelMessage> all;
  for (int step = 1; step < ranks; ++step) {
    const int to = (rank + step) % ranks, from = (rank + ranks - step) % ranks;
    const Part out = part(rank, to), in = part(from, rank);
    if (out.count != 0) all.push_back({input + out.from * 2, out.count * 2, to, 0});
    if (in.count != 0) all.push_back({output + in.to * 2, in.count * 2, from, 1});
  }
  return all;
}

}  // namespace native
