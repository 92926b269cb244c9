#include "bootstrap/address_exchange/random_world.hpp"

#include <gtest/gtest.h>

namespace torch::comms::bootstrap {
namespace {

using Kind = ExchangeAction::Kind;
constexpr Moment kServeFailureTimeout = std::chrono::milliseconds(400);

std::string contact_of(int rank) { return "at " + std::to_string(rank); }

}  // namespace

RandomWorld::RandomWorld(int size, unsigned seed, const ExchangeRetryPolicy& retry_policy)
    : retry_policy_(retry_policy), random_(seed) {
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::string> blobs(static_cast<size_t>(size));
    blobs[static_cast<size_t>(rank)] = blob_of(rank);
    ranks_.push_back({ExchangeProtocol(rank, size, retry_policy_), std::move(blobs),
                      std::vector<std::string>(kMaxRounds + 1)});
  }
}

ExchangeEndpointId RandomWorld::endpoint(int rank) const {
  return {rank, static_cast<int>(ranks_.size()), 1000 + static_cast<uint64_t>(rank), {}};
}

// Its process has ended, by death or with its own error.
bool RandomWorld::has_ended(int rank) {
  const auto& of = at(rank);
  return of.dead || (of.failed != kNever && now_ >= of.failed + kServeFailureTimeout);
}

void RandomWorld::run(const std::function<void(int64_t)>& before) {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
    later([this, rank] {
      happens(rank,
              [&](ExchangeProtocol& machine, ExchangeActions& out) { machine.start(now_, out); });
    });
  for (int64_t number = 0;; ++number) {
    if (before) before(number);
    if (events_.empty() && !pass_time()) return;
    if (events_.empty()) continue;
    std::swap(events_[random_() % events_.size()], events_.back());
    const auto event = std::move(events_.back());
    events_.pop_back();
    event();
  }
}

bool RandomWorld::pass_time() {
  Moment next = kNever;
  for (const auto& each : ranks_)
    if (!each.dead) next = std::min(next, each.machine.next_time());
  if (next == kNever) return false;
  now_ = std::max(now_, next);
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
    if (at(rank).machine.next_time() <= now_)
      later([this, rank] {
        happens(rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
          machine.on_time(now_, out);
        });
      });
  return true;
}

void RandomWorld::act(int rank, ExchangeActions& actions) {
  for (const auto& action : actions) act_on(rank, action);
}

void RandomWorld::act_on(int rank, const ExchangeAction& action) {
  auto& self = at(rank);
  switch (action.kind) {
    case Kind::kPublish:
      ++self.store;
      self.published = true;
      for (const int other : std::exchange(self.waiting, {}))
        act_on(other, {.kind = Kind::kLookUp, .peer = rank});
      return;
    case Kind::kLookUp:
      if (!at(action.peer).published) {
        at(action.peer).waiting.push_back(rank);
        return;
      }
      ++self.store;
      return later([this, rank, peer = action.peer] {
        at(rank).contacts[0] = contact_of(peer);
        happens(rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
          machine.on_contact(now_, out);
        });
      });
    case Kind::kRequest:
      return connect(rank, action);
    case Kind::kDisconnect:
      return close(std::exchange(self.link, 0));
    case Kind::kRespond:
      return respond(rank, action);
    case Kind::kSendFailure:
      return send_failure(action.link, links_[action.link].client, rank, self.machine.failure());
    case Kind::kRejectDuplicate:
      return send_failure(action.link, links_[action.link].client, rank,
                          {Errc::kMismatch, -1, "twice"});
    case Kind::kSendFailureToSource:
      return send_failure(self.link, links_[self.link].server, rank, self.machine.failure());
    case Kind::kProbe:
      return later([this, rank, peer = action.peer] {
        happens(rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
          machine.on_probed(peer, !at(peer).published || !has_ended(peer), out);
        });
      });
    case Kind::kDone:
      return;
    case Kind::kFailed:
      self.failed = now_;
      return;
  }
}

void RandomWorld::connect(int rank, const ExchangeAction& action) {
  const auto link = static_cast<uint32_t>(links_.size());
  links_.push_back({rank, action.peer, action.round});
  at(rank).link = link;
  // Where it connects to is what it was told, not what the test knows.
  ASSERT_EQ(at(rank).contacts[action.round], contact_of(action.peer));
  later([this, rank, link, action] {
    if (at(rank).link != link) return;
    if (has_ended(action.peer)) {
      at(rank).link = 0;
      return happens(rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
        machine.on_disconnected(now_, true, out);
      });
    }
    happens(rank, [&](ExchangeProtocol& machine, ExchangeActions&) { machine.on_connected(); });
    if (at(rank).dead) return;
    ++at(rank).frames;
    later([this, link, action] {
      if (has_ended(action.peer) || !links_[link].open) return close(link);
      happens(action.peer, [&](ExchangeProtocol& machine, ExchangeActions& out) {
        machine.on_request(action.round, link, endpoint(links_[link].client).instance, out);
      });
    });
  });
}

void RandomWorld::respond(int rank, const ExchangeAction& action) {
  auto& self = at(rank);
  const int client = links_[action.link].client;
  ExchangeFrame head;
  head.round = action.round;
  head.from = rank;
  head.to = client;
  head.size = static_cast<int>(ranks_.size());
  head.instance = endpoint(rank).instance;
  const bool more = self.machine.rounds().has_next(action.round);
  ResponseWriter writer(head, self.blobs, more ? self.contacts[action.round] : "");
  std::string bytes;
  while (writer.write(1000, bytes)) continue;
  ++self.frames;
  later([this, client, bytes, action, rank] {
    if (at(client).link != action.link || at(client).dead) return;
    ResponseReader reader(endpoint(client), rank, action.round, at(client).blobs);
    auto state = ResponseReader::State::kIncomplete;
    for (size_t done = 0; done < bytes.size();) {
      const size_t part = std::min<size_t>(1 + random_() % 400, bytes.size() - done);
      state = reader.feed(std::string_view(bytes).substr(done, part));
      done += part;
      ASSERT_EQ(state == ResponseReader::State::kIncomplete, done < bytes.size());
    }
    ASSERT_EQ(state, ResponseReader::State::kResponse) << to_text(reader.drop_reason());
    at(client).contacts[action.round + size_t{1}] = reader.contact();
    happens(client, [&](ExchangeProtocol& machine, ExchangeActions& out) {
      machine.on_response(now_, out);
    });
  });
  later([this, rank, action] {
    happens(rank, [&](ExchangeProtocol& machine, ExchangeActions& out) {
      machine.on_served(action.round, out);
    });
  });
}

void RandomWorld::send_failure(uint32_t link, int to, int from, const FailureNotice& notice) {
  ++at(from).frames;
  later([this, link, to, from, notice] {
    if (links_[link].client == to && at(to).link != link) return;
    happens(to, [&](ExchangeProtocol& machine, ExchangeActions& out) {
      machine.on_peer_failure(from, notice, out);
    });
  });
}

// Both ends see that a connection has ended, each in its own time.
void RandomWorld::close(uint32_t link) {
  if (link == 0 || !links_[link].open) return;
  links_[link].open = false;
  later([this, link] {
    const auto& of = links_[link];
    happens(of.server, [&](ExchangeProtocol& machine, ExchangeActions&) {
      machine.on_client_disconnected(of.round, link);
    });
  });
  later([this, link] {
    const int client = links_[link].client;
    if (at(client).link != link) return;
    at(client).link = 0;
    happens(client, [&](ExchangeProtocol& machine, ExchangeActions& out) {
      machine.on_disconnected(now_, false, out);
    });
  });
}

void RandomWorld::kill(int rank) {
  at(rank).dead = true;
  for (uint32_t link = 1; link < links_.size(); ++link)
    if (links_[link].client == rank || links_[link].server == rank) close(link);
}

}  // namespace torch::comms::bootstrap
