#pragma once

#include <cstdint>

#include "schedule/algorithm.hpp"
#include "sim/event_queue.hpp"
#include "sim/network.hpp"

namespace torch::comms::sim {

// A number of every rank, over the ranks.
struct RankStatistics {
  int64_t max = 0;
  double mean = 0;
};

struct CollectiveRun {
  const schedule::Algorithm* algorithm = nullptr;
  int ranks = 1;
  // Of the whole vector; of the block of one rank where every rank has its own (all_gather,
  // reduce_scatter, gather, scatter, all_to_all).
  int64_t bytes = 0;
  int element_bytes = 4;
  int root = 0;
  schedule::AlgorithmOptions options = {};  // its local_size is the network's
  Network network = {};
  NetworkFaults faults = {};
  int64_t max_steps = 400'000'000;  // that a run may take, over all ranks, before it is refused
};

struct CollectiveResult {
  double time_us = 0;   // until the last rank is done
  double first_us = 0;  // until the first is
  int64_t steps = 0;    // of the schedule
  RankStatistics messages = {}, bytes_sent = {};
  schedule::Cost cost = {};  // what the algorithm's formula says, in elements
  // How it was found: ranks that ran, each standing for ranks / enumerated; and steps of other
  // ranks that were drawn to see that they do the same.
  int enumerated = 0, sampled = 0;
  int64_t events = 0, drops = 0;
  double bytes_per_rank = 0;  // of the simulator's memory, over the ranks that ran
};

// Runs the schedule of every rank on the network, as an executor does: all transfers of a step at
// once, the next step when they are done. Where an algorithm `rotates` and nothing goes wrong, the
// ranks of one leaf (or host) run and stand for all. The same run has the same result.
//
// Throws std::invalid_argument for a problem that the algorithm cannot do, and for a run of more
// than most_steps.
CollectiveResult simulate(const CollectiveRun& run, const SimInterruptCheck& pulse = {});

}  // namespace torch::comms::sim
