#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "bootstrap/address_exchange/exchange_protocol.hpp"
#include "bootstrap/address_exchange/response.hpp"

namespace torch::comms::bootstrap {

// All ranks of an exchange in memory. What can happen next happens in an order drawn from a seed;
// the clock moves only when nothing else can. Answers travel as their bytes, in pieces.
class RandomWorld {
 public:
  RandomWorld(int size, unsigned seed, const ExchangeRetryPolicy& retry_policy = {});

  // Until nothing can happen any more; `before` each event may interfere.
  void run(const std::function<void(int64_t event)>& before = {});
  // Ranks that never start. Call before run().
  void leave_out(int rank) { ranks_[static_cast<size_t>(rank)].dead = true; }
  void kill(int rank);

  const ExchangeProtocol& machine(int rank) const {
    return ranks_[static_cast<size_t>(rank)].machine;
  }
  bool dead(int rank) const { return ranks_[static_cast<size_t>(rank)].dead; }
  bool published(int rank) const { return ranks_[static_cast<size_t>(rank)].published; }
  const std::vector<std::string>& blobs(int rank) const {
    return ranks_[static_cast<size_t>(rank)].blobs;
  }
  int store_operations(int rank) const { return ranks_[static_cast<size_t>(rank)].store; }
  int frames(int rank) const { return ranks_[static_cast<size_t>(rank)].frames; }
  Moment now() const { return now_; }
  static std::string blob_of(int rank) {
    return std::string(static_cast<size_t>(rank % 7), 'x') + std::to_string(rank);
  }

 private:
  struct Link {
    int client, server, round;
    bool open = true;
  };
  struct Rank {
    ExchangeProtocol machine;
    std::vector<std::string> blobs;
    std::vector<std::string> contacts;
    std::vector<int> waiting = {};  // for its contact
    uint32_t link = 0;              // of its question
    bool dead = false, published = false;
    Moment failed = kNever;
    int store = 0, frames = 0;
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  ExchangeEndpointId endpoint(int rank) const;
  bool has_ended(int rank);
  void later(std::function<void()> event) { events_.push_back(std::move(event)); }
  void act(int rank, ExchangeActions& actions);
  void act_on(int rank, const ExchangeAction& action);
  void connect(int rank, const ExchangeAction& action);
  void respond(int rank, const ExchangeAction& action);
  void send_failure(uint32_t link, int to, int from, const FailureNotice& notice);
  void close(uint32_t link);
  template <class Event>
  void happens(int rank, const Event& event) {
    if (at(rank).dead) return;
    ExchangeActions actions;
    event(at(rank).machine, actions);
    act(rank, actions);
  }
  bool pass_time();

  ExchangeRetryPolicy retry_policy_;
  std::mt19937 random_;
  std::deque<Rank> ranks_;
  std::vector<Link> links_{{}};
  std::vector<std::function<void()>> events_;
  Moment now_{};
};

}  // namespace torch::comms::bootstrap
