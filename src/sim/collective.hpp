#pragma once

#include <cstdint>

#include "schedule/algorithm.hpp"
#include "sim/event_queue.hpp"
#include "sim/network.hpp"

namespace torch::comms::sim {

// Maximum and mean of a number over the ranks.
struct RankStatistics {
  int64_t max = 0;
  double mean = 0;
};

// The parameters of a simulated collective.
struct CollectiveRun {
  const schedule::Algorithm* algorithm = nullptr;
  int ranks = 1;
  // Bytes of the whole vector, or of the block of one rank for all_gather, reduce_scatter, gather,
  // scatter and all_to_all.
  int64_t bytes = 0;
  int element_bytes = 4;
  int root = 0;
  schedule::AlgorithmOptions options = {};  // local_size is taken from the network
  Network network = {};
  NetworkFaults faults = {};
  int64_t max_steps = 400'000'000;  // limit of the steps of all ranks
};

// The result of a simulated collective.
struct CollectiveResult {
  double time_us = 0;   // until the last rank is done
  double first_us = 0;  // until the first rank is done
  int64_t steps = 0;    // of the schedule
  RankStatistics messages = {}, bytes_sent = {};
  schedule::Cost cost = {};  // by the algorithm's formula, in elements
  // How the result was found. `enumerated` ranks ran, each for ranks / enumerated ranks; `sampled`
  // steps of other ranks were compared with theirs.
  int enumerated = 0, sampled = 0;
  int64_t events = 0, drops = 0;
  double bytes_per_rank = 0;  // memory of the simulator, over the ranks that ran
};

// Runs the schedule of every rank on the network, as an executor does: all transfers of a step at
// once, and the next step when they are done. If the algorithm is rotation invariant and there are
// no faults, the ranks of one leaf (or host) represent all. The same run always has the same
// result.
//
// Throws: std::invalid_argument if the algorithm does not support the problem, or if the run would
// take more than `max_steps`.
CollectiveResult simulate(const CollectiveRun& run, const SimInterruptCheck& interrupt_check = {});

}  // namespace torch::comms::sim
