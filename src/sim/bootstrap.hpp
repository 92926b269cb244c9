#pragma once

#include <cstdint>

#include "bootstrap/address_exchange/exchange_protocol.hpp"
#include "sim/collective.hpp"
#include "sim/event_queue.hpp"
#include "sim/network.hpp"

namespace torch::comms::sim {

// The rendezvous store: one server that handles one request after the other.
struct StoreServer {
  double connect_us = 25;
  double request_us = 7;
};

// The parameters of a simulated bootstrap.
struct BootstrapRun {
  int ranks = 1;
  int64_t blob_bytes = 128;  // of each rank
  int64_t contact_bytes = 24;
  Network network = {.between = {25, 5, 1, 1}, .inside = {10, 5, 1, 0.2}};  // TCP
  StoreServer store = {};
  double stagger_us = 0;  // the ranks start at random times within it
  NetworkFaults faults = {};
  double syn_retry_us = 1'000'000;  // of a connection, in the place of faults.retry_us
  int kill = -1;                    // the rank whose process is killed, or -1
  double kill_at_us = 0;
  bootstrap::ExchangeRetryPolicy retry_policy = {};
};

// The result of a simulated bootstrap.
struct BootstrapResult {
  double time_us = 0;   // until the last rank has ended, successful or not
  double store_us = 0;  // until the store's last request was done
  int rounds = 0;
  RankStatistics messages = {}, bytes_sent = {};  // between ranks
  RankStatistics store_requests = {};
  int64_t store_total = 0;
  int done = 0, failed = 0, killed = 0;  // numbers of ranks, by how they ended
  // Of the failed ranks: how many name the killed rank, and how long after the kill the last one
  // has failed.
  int naming = 0;
  double noticed_us = 0;
  int64_t retries = 0;  // repeated requests
  int64_t events = 0;
  double bytes_per_rank = 0;  // memory of the simulator
  int64_t table_bytes = 0;    // blobs of all ranks; real ranks each have a copy
};

// Runs the ExchangeProtocol of every rank on a simulated network with a virtual clock. It is the
// same state machine that real ranks run. The blobs exist only once. The same run always has the
// same result.
//
// A connection takes one message in each direction, as in TCP. A rank whose process has ended
// refuses new connections and resets its old ones.
// Throws: std::invalid_argument.
BootstrapResult simulate(const BootstrapRun& run, const SimInterruptCheck& interrupt_check = {});

}  // namespace torch::comms::sim
