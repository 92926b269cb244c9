#pragma once

#include <string>
#include <vector>

#include "bootstrap/key_value_store.hpp"

namespace torch::comms::bootstrap {

inline constexpr int kMaxRanks = 1'000'000;

// Throws CommError(kInvalidArgument) unless 0 <= rank < size <= kMaxRanks.
void validate_rank(int rank, int size);

// "rank 3 of 8", "ranks 1, 3-5 of 8"; `ranks` ascending and not empty. Long lists stay short: at
// most 20 ranges are written, then "and N more".
std::string format_ranks(const std::vector<int>& ranks, int size);

// The ranks of [0, size) without a key <prefix><rank>, ascending; the search ends after the first
// 256. A few absent ones cost O(log size) messages each.
std::vector<int> missing_ranks(KeyValueStore& store, const std::string& prefix, int size);

}  // namespace torch::comms::bootstrap
