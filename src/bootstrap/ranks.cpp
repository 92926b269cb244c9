#include "bootstrap/ranks.hpp"

#include <algorithm>
#include <cstddef>

#include <torchcomms/base/error.hpp>

namespace torch::comms::bootstrap {
namespace {

constexpr int kRanges = 20;
// 256 ranks are enough to see the problem; a search for all of 100,000 would take too long.
constexpr size_t kFound = 256;
constexpr int kBlock = 1024;  // ranks per store request

// Returns the index after the last rank of the consecutive run that starts at `begin`.
size_t run_end(const std::vector<int>& ranks, size_t begin) {
  size_t end = begin + 1;
  while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
  return end;
}

// Halves [begin, end) until each rank without a key is found.
void search(KeyValueStore& store, const std::string& prefix, int begin, int end,
            std::vector<int>& found) {
  if (found.size() >= kFound) return;
  std::vector<std::string> keys;
  for (int rank = begin; rank < end; ++rank) keys.push_back(prefix + std::to_string(rank));
  if (store.has(keys)) return;
  if (end - begin == 1) {
    found.push_back(begin);
    return;
  }
  const int middle = begin + (end - begin) / 2;
  search(store, prefix, begin, middle, found);
  search(store, prefix, middle, end, found);
}

}  // namespace

void validate_rank(int rank, int size) {
  if (size < 1 || size > kMaxRanks)
    throw CommError(Errc::kInvalidArgument, "the number of ranks is " + std::to_string(size) +
                                                "; allowed are 1 to " + std::to_string(kMaxRanks));
  if (rank < 0 || rank >= size)
    throw CommError(Errc::kInvalidArgument, "rank " + std::to_string(rank) + " is outside [0, " +
                                                std::to_string(size) + ")");
}

std::string format_ranks(const std::vector<int>& ranks, int size) {
  std::string text;
  size_t at = 0;
  for (int range = 0; at < ranks.size() && range < kRanges; ++range) {
    const size_t end = run_end(ranks, at);
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[at]);
    if (end - at == 2) text += ", " + std::to_string(ranks[end - 1]);
    if (end - at > 2) text += "-" + std::to_string(ranks[end - 1]);
    at = end;
  }
  if (at < ranks.size()) text += " and " + std::to_string(ranks.size() - at) + " more";
  return (ranks.size() == 1 ? "rank " : "ranks ") + text + " of " + std::to_string(size);
}

std::vector<int> missing_ranks(KeyValueStore& store, const std::string& prefix, int size) {
  std::vector<int> found;
  for (int begin = 0; begin < size && found.size() < kFound; begin += kBlock)
    search(store, prefix, begin, std::min(begin + kBlock, size), found);
  return found;
}

}  // namespace torch::comms::bootstrap
