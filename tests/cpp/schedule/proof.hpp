#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "schedule/interpreter.hpp"

// Claims about an algorithm, checked for all ranks of one operation.
namespace torch::comms::schedule {

// One operation on all ranks, before they differ.
struct Case {
  Operation operation = Operation::kBarrier;
  int size = 1;
  int64_t count = 0;  // of the vector, or of every block
  int root = 0;
  AlgorithmOptions options = {};
  // Blocks of different sizes (all_gather, ..., all_to_all) around `count`, some of them empty.
  bool uneven = false;
};
std::string to_string(const Case& what);

// The problems of all ranks, with what they borrow.
class Problems {
 public:
  explicit Problems(const Case& what);
  Problems(const Problems&) = delete;
  Problems& operator=(const Problems&) = delete;
  const Problem& operator[](int rank) const { return all_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(all_.size()); }

 private:
  std::vector<std::vector<int64_t>> offsets_;
  std::vector<Problem> all_;
};

// Which elements of which inputs output element `i` of `rank` is made of.
struct Source {
  bool all_ranks = false;  // the sum over all ranks
  int rank = 0;            // else: this one's
  int64_t index = 0;
};
Source source_of(const Problems& problems, int rank, int64_t i);

// The whole proof for one algorithm and case, under several conditions drawn from `seed`:
// - all rules of the interpreter hold, for messages that meet, and with a few under way;
// - every output element is the sum of the right elements;
// - its bits are the same on all ranks, in place or not, whatever the order of delivery, and those
// of
//   ((x0 + x1) + x2) + ... if the algorithm says rank order;
// - steps, messages, elements sent, received and added, and scratch are what credit_cost() says.
// Returns "" or what does not hold.
std::string disproof(const Algorithm& algorithm, const Case& what, uint64_t seed);

}  // namespace torch::comms::schedule
