#pragma once

#include <string>
#include <vector>

#include "bootstrap/key_value_store.hpp"

namespace torch::comms::bootstrap {

// Helpers for ranks in arguments, error texts and store keys.
inline constexpr int kMaxRanks = 1'000'000;

// Throws CommError(kInvalidArgument) unless 0 <= rank < size <= kMaxRanks.
void validate_rank(int rank, int size);

// Returns a text such as "rank 3 of 8" or "ranks 1, 3-5 of 8". `ranks` must be ascending and not
// empty. At most 20 ranges are written, then "and N more".
std::string format_ranks(const std::vector<int>& ranks, int size);

// Returns the ranks of [0, size) without a key <prefix><rank>, ascending. The search ends after the
// first 256. Few absent ranks cost O(log size) messages each.
std::vector<int> missing_ranks(KeyValueStore& store, const std::string& prefix, int size);

}  // namespace torch::comms::bootstrap
