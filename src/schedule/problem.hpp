#pragma once

#include <cstdint>
#include <string_view>

#include "schedule/patterns/blocks.hpp"

namespace torch::comms::schedule {

enum class Operation : uint8_t {
  kSend,
  kReceive,
  kBroadcast,
  kReduce,
  kAllReduce,
  kGather,
  kScatter,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBarrier,
};

// Returns: the name used in lists, logs and the tuning file: "all_reduce".
std::string_view operation_name(Operation operation) noexcept;

// The options of an algorithm. They are equal on all ranks of an operation; each algorithm uses
// those that concern it.
struct AlgorithmOptions {
  // Elements per transfer to a peer, for pipelined and direct algorithms. It also bounds the
  // scratch of direct algorithms. 0: everything at once.
  int64_t chunk = 0;
  int local_size = 1;       // ranks per host: [h * local_size, (h + 1) * local_size) are on host h
  int rings = 1;            // rings that run at once; each leaves the hosts at another local rank
  bool rank_order = false;  // sums must have the bits of ((x0 + x1) + x2) + ..., whatever the count
};

// One operation as one rank sees it. The functions below create problems. They throw
// std::invalid_argument for an invalid rank, root or count. local_size and rings are checked by the
// algorithms that use them.
//
// | operation      | input         | output        | blocks               | in place            |
// | -------------- | ------------- | ------------- | -------------------- | ------------------- |
// | all_reduce     | count         | count         | count, evenly        | input is output     |
// | reduce         | count         | count (root)  | count, evenly        | input is output     |
// | broadcast      | none          | count         | count, evenly        | always              |
// | gather         | block rank    | total (root)  | the output, by rank  | input is its block  |
// | all_gather     | block rank    | total         | the output, by rank  | input is its block  |
// | scatter        | total (root)  | block rank    | the input, by rank   | output is its block |
// | reduce_scatter | total         | block rank    | the input, by rank   | output is its block |
// | all_to_all     | total         | arriving      | the input, by target | never               |
// | send, receive  | count or none | none or count | count, evenly        | never               |
struct Problem {
  Operation operation = Operation::kBarrier;
  int rank = 0;
  int size = 1;
  int root = 0;  // send and receive: the peer, another rank
  Blocks blocks = {};
  Blocks receive_blocks = {};  // all_to_all: the output, by source
  AlgorithmOptions options = {};

  // Returns: elements of the whole vector.
  int64_t count() const noexcept { return blocks.total(); }
  // Return the elements that each buffer must hold on this rank. The scratch size depends on the
  // algorithm: see Algorithm::scratch().
  int64_t input_count() const noexcept;
  int64_t output_count() const noexcept;

  // Returns: this operation as another rank sees it. It requires that all ranks know all counts, so
  // it excludes all_to_all.
  Problem for_rank(int other) const noexcept;

  // Returns: the rank `distance` further around the ring of all ranks.
  int ring_neighbor(int64_t distance) const noexcept;
};

// Creates an all_reduce, reduce, broadcast, send, receive or barrier (count 0): one vector of
// `count` elements.
Problem vector_problem(Operation operation, int rank, int size, int64_t count, int root = 0,
                       const AlgorithmOptions& options = {});
// Creates a gather, scatter, all_gather or reduce_scatter: one block per rank; all ranks know all
// blocks.
Problem block_problem(Operation operation, int rank, const Blocks& blocks, int root = 0,
                      const AlgorithmOptions& options = {});
// Creates an all_to_all, with what this rank sends and receives. Use Blocks::equal() if every pair
// exchanges the same count.
Problem all_to_all_problem(int rank, const Blocks& sent, const Blocks& received,
                           const AlgorithmOptions& options = {});

}  // namespace torch::comms::schedule
