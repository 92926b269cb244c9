#pragma once

#include <cstdint>
#include <vector>

#include "bootstrap/exchange/exchange_protocol.hpp"
#include "sim/bootstrap.hpp"

namespace torch::comms::sim {

// All ranks of a BootstrapRun, the store and the network between them, as events.
class BootstrapWorld {
 public:
  // `run` and `pulse` outlive it.
  BootstrapWorld(const BootstrapRun& run, const Pulse& pulse);
  BootstrapResult result();

 private:
  using Action = bootstrap::ExchangeAction;
  using Exchange = bootstrap::ExchangeProtocol;

  enum class What : uint8_t {
    kStart,
    kReady,           // connected to the store
    kStoreConnected,  // at the store
    kPublished,       // at the store
    kLookedUp,        // at the store
    kContact,         // the answer of the store is there
    kSyn,             // at the source: a client wants to connect
    kConnected,       // at the client
    kRefused,         // at the client
    kQuestion,        // at the source
    kAnswer,          // at the client
    kServed,          // at the source: the answer has left
    kNotice,          // at either side
    kReset,           // at the client: its source has ended
    kGone,            // at the source: its client has hung up or ended
    kProbed,          // at the source: its client listens
    kProbeRefused,    // or not
    kTimer,
    kKill,
  };

  struct Event {
    What what;
    Fabric::Way way;
    uint8_t round;
    int rank;       // where it happens
    int other;      // the other one
    uint32_t link;  // number of the client's connection
    int64_t bytes;  // on the wire; -1: none
  };

  struct Rank {
    Exchange machine;
    Ticks processor = 0;
    Ticks timer = INT64_MAX;  // earliest in the queue
    Ticks ended = -1;
    uint32_t link = 0;   // its connection to its source; 0: none
    uint32_t links = 0;  // so many has it made
    uint32_t sent = 0;   // messages
    int64_t bytes = 0;
    uint16_t requests = 0;   // at the store
    Ticks looks_since = -1;  // when it began to look up its source; -1: not yet
    int16_t asked = -1;      // the last round it asked in
    bool dead = false, published = false;
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  Ticks now() const { return queue_.now(); }
  // Its process has ended.
  bool gone(const Rank& rank) const;

  void happen(const Event& event);
  void happen_at_store(const Event& event);
  void happen_to_connection(const Event& event);
  template <class Call>
  void tell(int rank, const Call& call);
  void act(int rank, const Action& action);
  void ask(int rank, const Action& action);
  void answer(int rank, const Action& action);
  void notice(int from, int to, int round, uint32_t link);
  void kill(int rank);

  // Puts `bytes` on the wire from one rank to another; retried as `retry_us` says when it is lost.
  Ticks send(Event event, int from, int64_t bytes, double retry_us);
  void to_store(What what, int rank, Ticks ready);
  Ticks serve(double cost_us);
  // `rank` asks the store at `when` where its source is.
  void look_up(int rank, Ticks when);
  void set_timer(int rank);

  const BootstrapRun& run_;
  const Pulse& pulse_;
  Fabric fabric_;
  EventQueue<Event> queue_;
  std::vector<Rank> ranks_;
  bootstrap::ExchangeActions actions_, running_;
  Ticks store_free_ = 0, store_latency_, store_overhead_;
  BootstrapResult result_;
};

}  // namespace torch::comms::sim
