#pragma once

#include <cstdint>

#include "bootstrap/address_exchange/exchange_protocol.hpp"
#include "sim/collective.hpp"
#include "sim/event_queue.hpp"
#include "sim/network.hpp"

namespace torch::comms::sim {

// The store where the ranks meet: one server, one request after the other.
struct StoreServer {
  double connect_us = 25;
  double request_us = 7;
};

struct BootstrapRun {
  int ranks = 1;
  int64_t blob_bytes = 128;  // of every rank
  int64_t contact_bytes = 24;
  Network network = {.between = {25, 5, 1, 1}, .inside = {10, 5, 1, 0.2}};  // TCP
  StoreServer store = {};
  double stagger_us = 0;  // the ranks start at random within this time
  NetworkFaults faults = {};
  double syn_retry_us = 1'000'000;  // of a connection, instead of faults.retry_us
  int kill = -1;                    // the rank whose process ends, or -1
  double kill_at_us = 0;
  bootstrap::ExchangeRetryPolicy pace = {};
};

struct BootstrapResult {
  double time_us = 0;   // until the last rank has ended, well or not
  double store_us = 0;  // until the store had nothing to do any more
  int rounds = 0;
  RankStatistics messages = {}, bytes_sent = {};  // between ranks
  RankStatistics store_requests = {};
  int64_t store_total = 0;
  int done = 0, failed = 0, killed = 0;  // ranks, by how they ended
  // Of those that failed: how many name the rank that was killed; how long after its end the last
  // of them knew.
  int naming = 0;
  double noticed_us = 0;
  int64_t retries = 0;  // questions asked again
  int64_t events = 0;
  double bytes_per_rank = 0;  // of the simulator's memory
  int64_t table_bytes = 0;    // the blobs, which all ranks share here and each has in truth
};

// Runs the ExchangeProtocol of every rank, the very state machine that real ranks run, on the
// network under a virtual clock. What a rank knows is what its state machine has been told; the
// blobs themselves exist once. The same run has the same result.
//
// Connections take a message there and one back, as TCP's do; a rank whose process has ended
// refuses them and resets those it had. Throws std::invalid_argument.
BootstrapResult simulate(const BootstrapRun& run, const SimInterruptCheck& pulse = {});

}  // namespace torch::comms::sim
