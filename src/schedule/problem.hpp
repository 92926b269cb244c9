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

// "all_reduce": the name used in lists, logs and the tuning file.
std::string_view operation_name(Operation operation) noexcept;

// How an algorithm is to run. Equal on all ranks of an operation; each algorithm reads what
// concerns it.
struct AlgorithmOptions {
  // Elements that algorithms which pipeline, and direct ones, move to a peer at a time; it also
  // bounds the scratch of the latter. 0: everything at once.
  int64_t chunk = 0;
  int local_size = 1;       // ranks on a host: [h * local_size, (h + 1) * local_size) are on host h
  int rings = 1;            // how many rings at once, each leaving the hosts at another local rank
  bool rank_order = false;  // sums must have the bits of ((x0 + x1) + x2) + ..., whatever the count
};

// One operation as one rank sees it. The makers below throw std::invalid_argument for a rank, root
// or count that cannot be; local_size and rings are looked at by the algorithms that use them.
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

  // Elements of the whole vector.
  int64_t count() const noexcept { return blocks.total(); }
  // What each buffer must hold on this rank. Scratch depends on the algorithm:
  // Algorithm::scratch().
  int64_t input_count() const noexcept;
  int64_t output_count() const noexcept;

  // The same operation as another rank sees it, where all ranks know all counts: not all_to_all.
  Problem for_rank(int other) const noexcept;

  // (rank + distance) around the ring of all ranks.
  int ring_neighbor(int64_t distance) const noexcept;
};

// all_reduce, reduce, broadcast, send, receive, barrier (count 0): one vector of `count` elements.
Problem vector_problem(Operation operation, int rank, int size, int64_t count, int root = 0,
                       const AlgorithmOptions& options = {});
// gather, scatter, all_gather, reduce_scatter: one block a rank, all ranks know all of them.
Problem block_problem(Operation operation, int rank, const Blocks& blocks, int root = 0,
                      const AlgorithmOptions& options = {});
// all_to_all: what this rank sends and receives; Blocks::constant_time_equal() when that is the
// same for all pairs.
Problem all_to_all_problem(int rank, const Blocks& sent, const Blocks& received,
                           const AlgorithmOptions& options = {});

}  // namespace torch::comms::schedule
