#include "sim/bootstrap_simulation.hpp"

#include <algorithm>
#include <chrono>
#include <random>

#include <torchcomms/base/error.hpp>

#include "bootstrap/address_exchange/exchange_frame.hpp"
#include "bootstrap/address_exchange/response.hpp"
#include "bootstrap/poll_pause.hpp"

namespace torch::comms::sim {
namespace {

using bootstrap::ExchangeActions;
using bootstrap::ExchangeProtocol;
using bootstrap::Moment;
using ExchangePhase = ExchangeProtocol::ExchangePhase;

constexpr int64_t kInterruptCheckInterval = 1 << 16;
constexpr int64_t kSegment = 64;  // bytes of a SYN or a reset on the wire
constexpr Ticks kServeFailureTime =
    400'000 * kPerMicrosecond;  // how long a failed rank still listens

constexpr Ticks kPerNanosecond = kPerMicrosecond / 1000;

Moment moment(Ticks at) { return Moment(at / 1000); }
Ticks ticks(Moment at) { return at.count() * 1000; }

}  // namespace

BootstrapSimulation::BootstrapSimulation(const BootstrapRun& run,
                                         const SimInterruptCheck& interrupt_check)
    : run_(run),
      interrupt_check_(interrupt_check),
      fabric_(run.network, run.ranks),
      store_latency_(from_us(run.network.between.latency_us)),
      store_overhead_(from_us(run.network.between.overhead_us)) {
  ranks_.reserve(static_cast<size_t>(run.ranks));
  for (int rank = 0; rank < run.ranks; ++rank)
    ranks_.push_back({.protocol = ExchangeProtocol(rank, run.ranks, run.retry_policy)});
}

bool BootstrapSimulation::has_ended(const BootstrapRank& rank) const {
  if (rank.is_dead) return true;
  if (rank.ended_at < 0) return false;
  return rank.protocol.phase() == ExchangePhase::kDone ||
         now() >= rank.ended_at + kServeFailureTime;
}

Ticks BootstrapSimulation::send(BootstrapEvent event, int from, int64_t bytes, double retry_us) {
  auto& self = at(from);
  event.path = fabric_.path(from, event.rank);
  event.bytes = bytes;
  self.processor = after(std::max(self.processor, now()), fabric_.overhead(event.path));
  const auto send_times = fabric_.send(from, event.path, bytes, self.processor);
  Ticks late = 0;
  if (run_.faults.has_any()) late = run_.faults.delay_of(from, event.rank, self.sent, retry_us);
  ++self.sent;
  self.bytes += bytes;
  queue_.add(send_times.at_peer + late, event);
  return send_times.released;
}

void BootstrapSimulation::to_store(BootstrapEventKind what, int rank, Ticks ready) {
  auto& self = at(rank);
  self.processor = after(std::max(self.processor, ready), store_overhead_);
  Ticks late = 0;
  if (run_.faults.has_any())
    late = run_.faults.lateness(
        rank, -1, self.requests + (what == BootstrapEventKind::kStoreConnected ? 64u : 0u));
  queue_.add(self.processor + store_latency_ + late, {what, {}, 0, rank, -1, 0, -1});
}

Ticks BootstrapSimulation::serve(double cost_us) {
  store_free_ = after(std::max(store_free_, now()), from_us(cost_us));
  return store_free_;
}

void BootstrapSimulation::set_timer(int rank) {
  auto& self = at(rank);
  const Moment next = self.protocol.next_time();
  if (next == bootstrap::kNever) return;
  const Ticks when = std::max(ticks(next), now());
  // An earlier timer in the queue will set the next one.
  if (self.timer <= when) return;
  self.timer = when;
  queue_.add(when, {BootstrapEventKind::kTimer, {}, 0, rank, -1, 0, -1});
}

template <class Call>
void BootstrapSimulation::notify(int rank, const Call& call) {
  auto& self = at(rank);
  if (self.is_dead) return;
  call(self.protocol, actions_);
  while (!actions_.empty()) {
    std::swap(actions_, running_);
    for (const auto& action : running_) run_action(rank, action);
    running_.clear();
  }
  if (self.ended_at < 0 && self.protocol.phase() >= ExchangePhase::kDone) self.ended_at = now();
  set_timer(rank);
}

void BootstrapSimulation::run_action(int rank, const ExchangeAction& action) {
  auto& self = at(rank);
  switch (action.kind) {
    case ExchangeAction::Kind::kPublish:
      ++self.requests;
      return to_store(BootstrapEventKind::kPublished, rank, now());
    case ExchangeAction::Kind::kLookUp:
      return;  // kPublish continues with it, on the same connection
    case ExchangeAction::Kind::kRequest:
      return send_request(rank, action);
    case ExchangeAction::Kind::kDisconnect:
      self.link = 0;
      return;
    case ExchangeAction::Kind::kRespond:
      return send_response(rank, action);
    case ExchangeAction::Kind::kSendFailure:
    case ExchangeAction::Kind::kRejectDuplicate:
      return send_failure(rank, self.protocol.rounds().client(static_cast<int>(action.link & 31)),
                          static_cast<int>(action.link & 31), action.link);
    case ExchangeAction::Kind::kSendFailureToSource:
      return send_failure(rank, self.protocol.rounds().source(self.protocol.round()),
                          self.protocol.round(), self.link);
    case ExchangeAction::Kind::kProbe:
      send({BootstrapEventKind::kSyn, {}, 0, action.peer, rank, 0, 0}, rank, kSegment,
           run_.syn_retry_us);
      return;
    case ExchangeAction::Kind::kDone:
    case ExchangeAction::Kind::kFailed:
      return;
  }
}

// The link number: the count of the client's connections so far, and the round.
void BootstrapSimulation::send_request(int rank, const ExchangeAction& action) {
  auto& self = at(rank);
  if (self.last_request == action.round) ++result_.retries;
  self.last_request = action.round;
  self.link = ++self.links << 5 | action.round;
  send({BootstrapEventKind::kSyn, {}, action.round, action.peer, rank, self.link, 0}, rank,
       kSegment, run_.syn_retry_us);
}

void BootstrapSimulation::send_response(int rank, const ExchangeAction& action) {
  const auto& rounds = at(rank).protocol.rounds();
  const int blobs = rounds.blobs(action.round);
  const int64_t bytes = static_cast<int64_t>(sizeof(bootstrap::ExchangeFrame) +
                                             bootstrap::min_response_bytes(blobs)) +
                        (rounds.has_next(action.round) ? run_.contact_bytes : 0) +
                        blobs * run_.blob_bytes;
  const Ticks out =
      send({BootstrapEventKind::kResponse, {}, action.round, action.peer, rank, action.link, 0},
           rank, bytes, run_.faults.retry_us);
  queue_.add(std::max(out, now()),
             {BootstrapEventKind::kServed, {}, action.round, rank, -1, action.link, -1});
}

void BootstrapSimulation::send_failure(int from, int to, int round, uint32_t link) {
  const auto bytes = static_cast<int64_t>(sizeof(bootstrap::ExchangeFrame) +
                                          bootstrap::to_bytes(at(from).protocol.failure()).size());
  send({BootstrapEventKind::kFailure, {}, static_cast<uint8_t>(round), to, from, link, 0}, from,
       bytes, run_.faults.retry_us);
}

void BootstrapSimulation::kill(int rank) {
  auto& self = at(rank);
  if (self.ended_at >= 0) return;  // the rank has ended before
  self.is_dead = true;
  self.ended_at = now();
  ++result_.killed;
  const auto& rounds = self.protocol.rounds();
  // The kernel of a killed process closes its connections, those of clients and that to its source.
  for (int round = 0; round < rounds.count(); ++round) {
    const auto& client = at(rounds.client(round));
    if (client.link != 0 && static_cast<int>(client.link & 31) == round)
      send({BootstrapEventKind::kReset,
            {},
            static_cast<uint8_t>(round),
            rounds.client(round),
            rank,
            client.link,
            0},
           rank, kSegment, run_.faults.retry_us);
  }
  if (self.link != 0)
    send({BootstrapEventKind::kClientLost,
          {},
          static_cast<uint8_t>(self.link & 31),
          rounds.source(static_cast<int>(self.link & 31)),
          rank,
          self.link,
          0},
         rank, kSegment, run_.faults.retry_us);
}

void BootstrapSimulation::handle_event(const BootstrapEvent& event) {
  // A message from the wire first takes time of the NIC and of the processor.
  if (event.bytes >= 0) {
    BootstrapEvent there = event;
    there.bytes = -1;
    const Ticks whole = fabric_.receive(event.rank, event.path, event.bytes, now());
    auto& self = at(event.rank);
    self.processor = after(std::max(self.processor, whole), fabric_.overhead(event.path));
    return queue_.add(self.processor, there);
  }
  switch (event.kind) {
    case BootstrapEventKind::kStart:
      return to_store(BootstrapEventKind::kStoreConnected, event.rank, now());
    case BootstrapEventKind::kReady:
      return notify(event.rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
        machine.start(moment(now()), out);
      });
    case BootstrapEventKind::kStoreConnected:
    case BootstrapEventKind::kPublished:
    case BootstrapEventKind::kLookedUp:
      return handle_store_event(event);
    case BootstrapEventKind::kContact:
      return notify(event.rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
        machine.on_contact(moment(now()), out);
      });
    case BootstrapEventKind::kTimer:
      if (at(event.rank).timer == now()) at(event.rank).timer = INT64_MAX;
      return notify(event.rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
        machine.on_time(moment(now()), out);
      });
    case BootstrapEventKind::kKill:
      return kill(event.rank);
    default:
      return handle_connection_event(event);
  }
}

void BootstrapSimulation::handle_store_event(const BootstrapEvent& event) {
  auto& self = at(event.rank);
  if (event.kind == BootstrapEventKind::kStoreConnected) {
    const Ticks back = serve(run_.store.connect_us) + store_latency_ + store_overhead_;
    self.processor = std::max(self.processor, back);
    return queue_.add(back, {BootstrapEventKind::kReady, {}, 0, event.rank, -1, 0, -1});
  }
  const Ticks done = serve(run_.store.request_us);
  if (event.kind == BootstrapEventKind::kPublished) {
    self.has_published = true;
    // The look-up waits for this response: a client of the store makes one request at a time.
    self.lookup_since = done + store_latency_ + store_overhead_;
    return look_up(event.rank, self.lookup_since);
  }
  const Ticks answered = done + store_latency_ + store_overhead_;
  if (at(self.protocol.rounds().source(0)).has_published)
    return queue_.add(answered, {BootstrapEventKind::kContact, {}, 0, event.rank, -1, 0, -1});
  const auto waited = std::chrono::nanoseconds((answered - self.lookup_since) / kPerNanosecond);
  look_up(event.rank, answered + bootstrap::poll_pause(waited).count() * kPerNanosecond);
}

void BootstrapSimulation::look_up(int rank, Ticks when) {
  if (has_ended(at(rank))) return;
  ++at(rank).requests;
  queue_.add(when + store_latency_ + store_overhead_,
             {BootstrapEventKind::kLookedUp, {}, 0, rank, -1, 0, -1});
}

void BootstrapSimulation::handle_connection_event(const BootstrapEvent& event) {
  auto& self = at(event.rank);
  const auto reply = [&](BootstrapEventKind what, double retry_us) {
    send({what, {}, event.round, event.peer, event.rank, event.link, 0}, event.rank, kSegment,
         retry_us);
  };
  // An event for a client counts only if it still has this connection.
  const bool current = self.link == event.link && event.link != 0;
  const Moment time = moment(now());
  switch (event.kind) {
    case BootstrapEventKind::kSyn:
      if (event.link == 0)
        return reply(
            has_ended(self) ? BootstrapEventKind::kProbeRefused : BootstrapEventKind::kProbed,
            run_.syn_retry_us);
      return reply(has_ended(self) ? BootstrapEventKind::kRefused : BootstrapEventKind::kConnected,
                   run_.syn_retry_us);
    case BootstrapEventKind::kConnected:
      if (!current || has_ended(self)) return;
      notify(event.rank,
             [&](ExchangeProtocol& machine, ExchangeActions&) { machine.on_connected(); });
      send({BootstrapEventKind::kRequest, {}, event.round, event.peer, event.rank, event.link, 0},
           event.rank, static_cast<int64_t>(sizeof(bootstrap::ExchangeFrame)),
           run_.faults.retry_us);
      return;
    case BootstrapEventKind::kRequest:
      if (has_ended(self)) return reply(BootstrapEventKind::kReset, run_.faults.retry_us);
      return notify(event.rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
        machine.on_request(event.round, event.link, static_cast<uint64_t>(event.peer) + 1, out);
      });
    case BootstrapEventKind::kServed:
      return notify(event.rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
        machine.on_served(event.round, out);
      });
    case BootstrapEventKind::kClientLost:
      return notify(event.rank, [&](ExchangeProtocol& machine, ExchangeActions&) {
        machine.on_client_disconnected(event.round, event.link);
      });
    case BootstrapEventKind::kProbed:
    case BootstrapEventKind::kProbeRefused:
      return notify(event.rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
        machine.on_probed(event.peer, event.kind == BootstrapEventKind::kProbed, out);
      });
    case BootstrapEventKind::kFailure: {
      const bool from_client = self.protocol.rounds().client(event.round) == event.peer;
      if (!current && !from_client) return;
      return notify(event.rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
        machine.on_peer_failure(event.peer, at(event.peer).protocol.failure(), out);
      });
    }
    default:
      break;
  }
  if (!current) return;
  if (event.kind == BootstrapEventKind::kResponse)
    return notify(event.rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
      machine.on_response(time, out);
    });
  self.link = 0;
  notify(event.rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
    machine.on_disconnected(time, event.kind == BootstrapEventKind::kRefused, out);
  });
}

BootstrapResult BootstrapSimulation::result() {
  std::mt19937_64 random(run_.faults.seed);
  std::uniform_real_distribution<double> stagger(0, run_.stagger_us);
  for (int rank = 0; rank < run_.ranks; ++rank)
    queue_.add(from_us(stagger(random)), {BootstrapEventKind::kStart, {}, 0, rank, -1, 0, -1});
  if (run_.kill >= 0)
    queue_.add(from_us(run_.kill_at_us), {BootstrapEventKind::kKill, {}, 0, run_.kill, -1, 0, -1});
  while (!queue_.empty()) {
    if (interrupt_check_ && queue_.popped() % kInterruptCheckInterval == 0) interrupt_check_();
    handle_event(queue_.pop());
  }
  Ticks last = 0, noticed = 0;
  size_t bytes = fabric_.bytes() + queue_.peak_bytes() + sizeof(BootstrapRank) * ranks_.capacity();
  const auto add = [&](RankStatistics& spread, int64_t value) {
    spread.max = std::max(spread.max, value);
    spread.mean += static_cast<double>(value) / run_.ranks;
  };
  for (const auto& rank : ranks_) {
    TC_CHECK(rank.ended_at >= 0);
    add(result_.messages, rank.sent);
    add(result_.bytes_sent, rank.bytes);
    add(result_.store_requests, rank.requests);
    result_.store_total += rank.requests;
    bytes += rank.protocol.failure().reason.capacity();
    if (rank.is_dead) continue;
    last = std::max(last, rank.ended_at);
    if (rank.protocol.phase() == ExchangePhase::kDone) {
      ++result_.done;
      continue;
    }
    ++result_.failed;
    noticed = std::max(noticed, rank.ended_at);
    if (rank.protocol.failure().peer == run_.kill) ++result_.naming;
  }
  result_.time_us = to_us(last);
  result_.store_us = to_us(store_free_);
  result_.rounds = ranks_[0].protocol.rounds().count();
  if (result_.failed > 0 && run_.kill >= 0) result_.noticed_us = to_us(noticed) - run_.kill_at_us;
  result_.events = queue_.popped();
  result_.bytes_per_rank = static_cast<double>(bytes) / run_.ranks;
  result_.table_bytes = run_.ranks * run_.blob_bytes;
  return result_;
}

}  // namespace torch::comms::sim
