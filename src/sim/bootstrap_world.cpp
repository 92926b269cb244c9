#include "sim/bootstrap_world.hpp"

#include <algorithm>
#include <chrono>
#include <random>

#include <torchcomms/base/error.hpp>

#include "bootstrap/exchange/exchange_frame.hpp"
#include "bootstrap/exchange/response.hpp"
#include "bootstrap/poll_pause.hpp"

namespace torch::comms::sim {
namespace {

using bootstrap::ExchangeActions;
using bootstrap::ExchangeProtocol;
using bootstrap::Moment;
using Phase = ExchangeProtocol::ExchangePhase;

constexpr int64_t kPulse = 1 << 16;
constexpr int64_t kSegment = 64;                        // bytes of a SYN or a reset on the wire
constexpr Ticks kFarewell = 400'000 * kPerMicrosecond;  // a failed rank listens for so long

constexpr Ticks kPerNanosecond = kPerMicrosecond / 1000;

Moment moment(Ticks at) { return Moment(at / 1000); }
Ticks ticks(Moment at) { return at.count() * 1000; }

}  // namespace

BootstrapWorld::BootstrapWorld(const BootstrapRun& run, const Pulse& pulse)
    : run_(run),
      pulse_(pulse),
      fabric_(run.network, run.ranks),
      store_latency_(from_us(run.network.between.latency_us)),
      store_overhead_(from_us(run.network.between.overhead_us)) {
  ranks_.reserve(static_cast<size_t>(run.ranks));
  for (int rank = 0; rank < run.ranks; ++rank)
    ranks_.push_back({.machine = Exchange(rank, run.ranks, run.pace)});
}

bool BootstrapWorld::gone(const Rank& rank) const {
  if (rank.dead) return true;
  if (rank.ended < 0) return false;
  return rank.machine.phase() == Phase::kDone || now() >= rank.ended + kFarewell;
}

Ticks BootstrapWorld::send(Event event, int from, int64_t bytes, double retry_us) {
  auto& self = at(from);
  event.way = fabric_.way(from, event.rank);
  event.bytes = bytes;
  self.processor = after(std::max(self.processor, now()), fabric_.overhead(event.way));
  const auto departure = fabric_.depart(from, event.way, bytes, self.processor);
  Ticks late = 0;
  if (run_.faults.any()) late = run_.faults.lateness(from, event.rank, self.sent, retry_us);
  ++self.sent;
  self.bytes += bytes;
  queue_.add(departure.at_peer + late, event);
  return departure.released;
}

void BootstrapWorld::to_store(What what, int rank, Ticks ready) {
  auto& self = at(rank);
  self.processor = after(std::max(self.processor, ready), store_overhead_);
  Ticks late = 0;
  if (run_.faults.any())
    late =
        run_.faults.lateness(rank, -1, self.requests + (what == What::kStoreConnected ? 64u : 0u));
  queue_.add(self.processor + store_latency_ + late, {what, {}, 0, rank, -1, 0, -1});
}

Ticks BootstrapWorld::serve(double cost_us) {
  store_free_ = after(std::max(store_free_, now()), from_us(cost_us));
  return store_free_;
}

void BootstrapWorld::set_timer(int rank) {
  auto& self = at(rank);
  const Moment next = self.machine.next_time();
  if (next == bootstrap::kNever) return;
  const Ticks when = std::max(ticks(next), now());
  // One that is already in the queue, and not later, will look again.
  if (self.timer <= when) return;
  self.timer = when;
  queue_.add(when, {What::kTimer, {}, 0, rank, -1, 0, -1});
}

template <class Call>
void BootstrapWorld::tell(int rank, const Call& call) {
  auto& self = at(rank);
  if (self.dead) return;
  call(self.machine, actions_);
  while (!actions_.empty()) {
    std::swap(actions_, running_);
    for (const auto& action : running_) act(rank, action);
    running_.clear();
  }
  if (self.ended < 0 && self.machine.phase() >= Phase::kDone) self.ended = now();
  set_timer(rank);
}

void BootstrapWorld::act(int rank, const Action& action) {
  auto& self = at(rank);
  switch (action.kind) {
    case Action::Kind::kPublish:
      ++self.requests;
      return to_store(What::kPublished, rank, now());
    case Action::Kind::kLookUp:
      return;  // after kPublish, on the same connection
    case Action::Kind::kRequest:
      return ask(rank, action);
    case Action::Kind::kDisconnect:
      self.link = 0;
      return;
    case Action::Kind::kRespond:
      return answer(rank, action);
    case Action::Kind::kSendFailure:
    case Action::Kind::kRejectDuplicate:
      return notice(rank, self.machine.rounds().client(static_cast<int>(action.link & 31)),
                    static_cast<int>(action.link & 31), action.link);
    case Action::Kind::kSendFailureToSource:
      return notice(rank, self.machine.rounds().source(self.machine.round()), self.machine.round(),
                    self.link);
    case Action::Kind::kProbe:
      send({What::kSyn, {}, 0, action.peer, rank, 0, 0}, rank, kSegment, run_.syn_retry_us);
      return;
    case Action::Kind::kDone:
    case Action::Kind::kFailed:
      return;
  }
}

// The number of a connection: how many its client made before, and the round it is for.
void BootstrapWorld::ask(int rank, const Action& action) {
  auto& self = at(rank);
  if (self.asked == action.round) ++result_.retries;
  self.asked = action.round;
  self.link = ++self.links << 5 | action.round;
  send({What::kSyn, {}, action.round, action.peer, rank, self.link, 0}, rank, kSegment,
       run_.syn_retry_us);
}

void BootstrapWorld::answer(int rank, const Action& action) {
  const auto& rounds = at(rank).machine.rounds();
  const int blobs = rounds.blobs(action.round);
  const int64_t bytes = static_cast<int64_t>(sizeof(bootstrap::ExchangeFrame) +
                                             bootstrap::min_response_bytes(blobs)) +
                        (rounds.has_next(action.round) ? run_.contact_bytes : 0) +
                        blobs * run_.blob_bytes;
  const Ticks out = send({What::kAnswer, {}, action.round, action.peer, rank, action.link, 0}, rank,
                         bytes, run_.faults.retry_us);
  queue_.add(std::max(out, now()), {What::kServed, {}, action.round, rank, -1, action.link, -1});
}

void BootstrapWorld::notice(int from, int to, int round, uint32_t link) {
  const auto bytes = static_cast<int64_t>(sizeof(bootstrap::ExchangeFrame) +
                                          bootstrap::to_bytes(at(from).machine.failure()).size());
  send({What::kNotice, {}, static_cast<uint8_t>(round), to, from, link, 0}, from, bytes,
       run_.faults.retry_us);
}

void BootstrapWorld::kill(int rank) {
  auto& self = at(rank);
  if (self.ended >= 0) return;  // there was nothing left to kill
  self.dead = true;
  self.ended = now();
  ++result_.killed;
  const auto& rounds = self.machine.rounds();
  // The kernel closes its connections, at either end.
  for (int round = 0; round < rounds.count(); ++round) {
    const auto& client = at(rounds.client(round));
    if (client.link != 0 && static_cast<int>(client.link & 31) == round)
      send({What::kReset,
            {},
            static_cast<uint8_t>(round),
            rounds.client(round),
            rank,
            client.link,
            0},
           rank, kSegment, run_.faults.retry_us);
  }
  if (self.link != 0)
    send({What::kGone,
          {},
          static_cast<uint8_t>(self.link & 31),
          rounds.source(static_cast<int>(self.link & 31)),
          rank,
          self.link,
          0},
         rank, kSegment, run_.faults.retry_us);
}

void BootstrapWorld::happen(const Event& event) {
  // What came over the wire takes its turn at the NIC, and the processor's time.
  if (event.bytes >= 0) {
    Event there = event;
    there.bytes = -1;
    const Ticks whole = fabric_.arrive(event.rank, event.way, event.bytes, now());
    auto& self = at(event.rank);
    self.processor = after(std::max(self.processor, whole), fabric_.overhead(event.way));
    return queue_.add(self.processor, there);
  }
  switch (event.what) {
    case What::kStart:
      return to_store(What::kStoreConnected, event.rank, now());
    case What::kReady:
      return tell(event.rank, [&](Exchange& machine, ExchangeActions& out) {
        machine.start(moment(now()), out);
      });
    case What::kStoreConnected:
    case What::kPublished:
    case What::kLookedUp:
      return happen_at_store(event);
    case What::kContact:
      return tell(event.rank, [&](Exchange& machine, ExchangeActions& out) {
        machine.on_contact(moment(now()), out);
      });
    case What::kTimer:
      if (at(event.rank).timer == now()) at(event.rank).timer = INT64_MAX;
      return tell(event.rank, [&](Exchange& machine, ExchangeActions& out) {
        machine.on_time(moment(now()), out);
      });
    case What::kKill:
      return kill(event.rank);
    default:
      return happen_to_connection(event);
  }
}

void BootstrapWorld::happen_at_store(const Event& event) {
  auto& self = at(event.rank);
  if (event.what == What::kStoreConnected) {
    const Ticks back = serve(run_.store.connect_us) + store_latency_ + store_overhead_;
    self.processor = std::max(self.processor, back);
    return queue_.add(back, {What::kReady, {}, 0, event.rank, -1, 0, -1});
  }
  const Ticks done = serve(run_.store.request_us);
  if (event.what == What::kPublished) {
    self.published = true;
    // The look-up waits for the answer to this: a client of the store does one thing at a time.
    self.looks_since = done + store_latency_ + store_overhead_;
    return look_up(event.rank, self.looks_since);
  }
  const Ticks answered = done + store_latency_ + store_overhead_;
  if (at(self.machine.rounds().source(0)).published)
    return queue_.add(answered, {What::kContact, {}, 0, event.rank, -1, 0, -1});
  const auto waited = std::chrono::nanoseconds((answered - self.looks_since) / kPerNanosecond);
  look_up(event.rank, answered + bootstrap::poll_pause(waited).count() * kPerNanosecond);
}

void BootstrapWorld::look_up(int rank, Ticks when) {
  if (gone(at(rank))) return;
  ++at(rank).requests;
  queue_.add(when + store_latency_ + store_overhead_, {What::kLookedUp, {}, 0, rank, -1, 0, -1});
}

void BootstrapWorld::happen_to_connection(const Event& event) {
  auto& self = at(event.rank);
  const auto reply = [&](What what, double retry_us) {
    send({what, {}, event.round, event.other, event.rank, event.link, 0}, event.rank, kSegment,
         retry_us);
  };
  // What is said to a client counts while it has this very connection.
  const bool current = self.link == event.link && event.link != 0;
  const Moment time = moment(now());
  switch (event.what) {
    case What::kSyn:
      if (event.link == 0)
        return reply(gone(self) ? What::kProbeRefused : What::kProbed, run_.syn_retry_us);
      return reply(gone(self) ? What::kRefused : What::kConnected, run_.syn_retry_us);
    case What::kConnected:
      if (!current || gone(self)) return;
      tell(event.rank, [&](Exchange& machine, ExchangeActions&) { machine.on_connected(); });
      send({What::kQuestion, {}, event.round, event.other, event.rank, event.link, 0}, event.rank,
           static_cast<int64_t>(sizeof(bootstrap::ExchangeFrame)), run_.faults.retry_us);
      return;
    case What::kQuestion:
      if (gone(self)) return reply(What::kReset, run_.faults.retry_us);
      return tell(event.rank, [&](Exchange& machine, ExchangeActions& out) {
        machine.on_request(event.round, event.link, static_cast<uint64_t>(event.other) + 1, out);
      });
    case What::kServed:
      return tell(event.rank, [&](Exchange& machine, ExchangeActions& out) {
        machine.on_served(event.round, out);
      });
    case What::kGone:
      return tell(event.rank, [&](Exchange& machine, ExchangeActions&) {
        machine.on_client_disconnected(event.round, event.link);
      });
    case What::kProbed:
    case What::kProbeRefused:
      return tell(event.rank, [&](Exchange& machine, ExchangeActions& out) {
        machine.on_probed(event.other, event.what == What::kProbed, out);
      });
    case What::kNotice: {
      const bool from_client = self.machine.rounds().client(event.round) == event.other;
      if (!current && !from_client) return;
      return tell(event.rank, [&](Exchange& machine, ExchangeActions& out) {
        machine.on_peer_failure(event.other, at(event.other).machine.failure(), out);
      });
    }
    default:
      break;
  }
  if (!current) return;
  if (event.what == What::kAnswer)
    return tell(event.rank,
                [&](Exchange& machine, ExchangeActions& out) { machine.on_response(time, out); });
  self.link = 0;
  tell(event.rank, [&](Exchange& machine, ExchangeActions& out) {
    machine.on_disconnected(time, event.what == What::kRefused, out);
  });
}

BootstrapResult BootstrapWorld::result() {
  std::mt19937_64 random(run_.faults.seed);
  std::uniform_real_distribution<double> stagger(0, run_.stagger_us);
  for (int rank = 0; rank < run_.ranks; ++rank)
    queue_.add(from_us(stagger(random)), {What::kStart, {}, 0, rank, -1, 0, -1});
  if (run_.kill >= 0)
    queue_.add(from_us(run_.kill_at_us), {What::kKill, {}, 0, run_.kill, -1, 0, -1});
  while (!queue_.empty()) {
    if (pulse_ && queue_.taken() % kPulse == 0) pulse_();
    happen(queue_.take());
  }
  Ticks last = 0, noticed = 0;
  size_t bytes = fabric_.bytes() + queue_.peak_bytes() + sizeof(Rank) * ranks_.capacity();
  const auto add = [&](Spread& spread, int64_t value) {
    spread.max = std::max(spread.max, value);
    spread.mean += static_cast<double>(value) / run_.ranks;
  };
  for (const auto& rank : ranks_) {
    TC_CHECK(rank.ended >= 0);
    add(result_.messages, rank.sent);
    add(result_.bytes_sent, rank.bytes);
    add(result_.store_requests, rank.requests);
    result_.store_total += rank.requests;
    bytes += rank.machine.failure().reason.capacity();
    if (rank.dead) continue;
    last = std::max(last, rank.ended);
    if (rank.machine.phase() == Phase::kDone) {
      ++result_.done;
      continue;
    }
    ++result_.failed;
    noticed = std::max(noticed, rank.ended);
    if (rank.machine.failure().peer == run_.kill) ++result_.naming;
  }
  result_.time_us = to_us(last);
  result_.store_us = to_us(store_free_);
  result_.rounds = ranks_[0].machine.rounds().count();
  if (result_.failed > 0 && run_.kill >= 0) result_.noticed_us = to_us(noticed) - run_.kill_at_us;
  result_.events = queue_.taken();
  result_.bytes_per_rank = static_cast<double>(bytes) / run_.ranks;
  result_.table_bytes = run_.ranks * run_.blob_bytes;
  return result_;
}

}  // namespace torch::comms::sim
