#pragma once

#include <cstdint>
#include <vector>

#include "bootstrap/address_exchange/exchange_protocol.hpp"
#include "sim/bootstrap.hpp"

namespace torch::comms::sim {

// A discrete-event simulation of a BootstrapRun: all ranks, the store and the network.
class BootstrapSimulation {
 public:
  // Lifetime: `run` and `interrupt_check` must outlive the object.
  BootstrapSimulation(const BootstrapRun& run, const SimInterruptCheck& interrupt_check);
  BootstrapResult result();

 private:
  using ExchangeAction = bootstrap::ExchangeAction;
  using ExchangeProtocol = bootstrap::ExchangeProtocol;

  enum class BootstrapEventKind : uint8_t {
    kStart,
    kReady,           // connected to the store
    kStoreConnected,  // at the store
    kPublished,       // at the store
    kLookedUp,        // at the store
    kContact,         // the response of the store has arrived
    kSyn,             // at the source: connect of a client
    kConnected,       // at the client
    kRefused,         // at the client
    kRequest,         // at the source
    kResponse,        // at the client
    kServed,          // at the source: the response has been sent
    kFailure,         // at either side
    kReset,           // at the client: the source has ended
    kClientLost,      // at the source: the client has disconnected or ended
    kProbed,          // at the source: the client listens
    kProbeRefused,    // at the source: the client does not listen
    kTimer,
    kKill,
  };

  struct BootstrapEvent {
    BootstrapEventKind kind;
    Fabric::NetworkPath path;
    uint8_t round;
    int rank;       // where it happens
    int peer;       // the other rank
    uint32_t link;  // number of the client's connection
    int64_t bytes;  // on the wire; -1: none
  };

  struct BootstrapRank {
    ExchangeProtocol protocol;
    Ticks processor = 0;
    Ticks timer = INT64_MAX;  // earliest in the queue
    Ticks ended_at = -1;
    uint32_t link = 0;   // the connection to its source; 0: none
    uint32_t links = 0;  // how many it has made
    uint32_t sent = 0;   // number of messages
    int64_t bytes = 0;
    uint16_t requests = 0;      // to the store
    Ticks lookup_since = -1;    // when it began to look up its source; -1: not yet
    int16_t last_request = -1;  // the last round that it requested
    bool is_dead = false, has_published = false;
  };
  BootstrapRank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  Ticks now() const { return queue_.now(); }
  // Returns whether the process of `rank` has ended.
  bool has_ended(const BootstrapRank& rank) const;

  void handle_event(const BootstrapEvent& event);
  void handle_store_event(const BootstrapEvent& event);
  void handle_connection_event(const BootstrapEvent& event);
  template <class Call>
  void notify(int rank, const Call& call);
  void run_action(int rank, const ExchangeAction& action);
  void send_request(int rank, const ExchangeAction& action);
  void send_response(int rank, const ExchangeAction& action);
  void send_failure(int from, int to, int round, uint32_t link);
  void kill(int rank);

  // Sends `bytes` from one rank to another; a lost message is sent again after `retry_us`. Returns:
  // when it has left.
  Ticks send(BootstrapEvent event, int from, int64_t bytes, double retry_us);
  void to_store(BootstrapEventKind what, int rank, Ticks ready);
  Ticks serve(double cost_us);
  // Sends the look-up of the source of `rank` to the store at `when`.
  void look_up(int rank, Ticks when);
  void set_timer(int rank);

  const BootstrapRun& run_;
  const SimInterruptCheck& interrupt_check_;
  Fabric fabric_;
  EventQueue<BootstrapEvent> queue_;
  std::vector<BootstrapRank> ranks_;
  bootstrap::ExchangeActions actions_, running_;
  Ticks store_free_ = 0, store_latency_, store_overhead_;
  BootstrapResult result_;
};

}  // namespace torch::comms::sim
