#include "bootstrap/exchange/meeting.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/interfaces.hpp"
#include "base/socket.hpp"
#include "base/system_error.hpp"
#include "bootstrap/arrival_attempt.hpp"
#include "bootstrap/exchange/blame.hpp"
#include "bootstrap/exchange/meeting_rank.hpp"
#include "bootstrap/ranks.hpp"

namespace torch::comms::bootstrap {
namespace {

// How long a rank that failed stays to tell why to those that are about to ask it.
constexpr std::chrono::milliseconds kFarewell{400};
// How long a probe waits for where a rank listens: meanwhile nothing else goes on.
constexpr std::chrono::milliseconds kProbe{800};

void check(const Participant& self) {
  validate_rank(self.rank, self.size);
  if (self.blob.size() > kMaxBlobBytes)
    throw CommError(Errc::kTooLarge, "a rank has " + std::to_string(self.blob.size()) +
                                         " bytes to tell the others; at most " +
                                         std::to_string(kMaxBlobBytes));
}

}  // namespace

Meeting::Meeting(KeyValueStore& store, const Participant& self)
    : store_(store),
      registry_(store, self),
      self_(self),
      pace_(self.pace),
      machine_(self.rank, self.size, pace_) {
  result_.blobs.resize(static_cast<size_t>(self.size));
  result_.blobs[static_cast<size_t>(self.rank)] = self.blob;
  contacts_.resize(static_cast<size_t>(std::max(1, machine_.rounds().number())));
}

void Meeting::prepare() {
  if (self_.size == 1) return;
  uint16_t port = 0;
  listener_ = base::listen_on_all_interfaces(port);
  for (const auto& address :
       base::choose_addresses(base::interface_addresses(), self_.interface).addresses) {
    const auto text = base::format_address(address, port);
    if (contact_.size() + 1 + text.size() > kMaxContactBytes) break;
    contact_ += (contact_.empty() ? "" : " ") + text;
  }
  try {
    result_.secret = registry_.agree_on_secret();
  } catch (const CommError& e) {
    if (e.code() != Errc::kTimeout) throw;
    throw blame(store_, self_, {Errc::kTimeout, 0, "rank 0 has not put the job's secret there"}, "",
                "");
  }
}

Exchanged Meeting::run() {
  if (self_.size == 1) return std::move(result_);
  door_ = {self_.rank, self_.size, base::random_number(), result_.secret};
  reception_ = std::make_unique<Reception>(door_, self_.rules);
  pace_.limit = self_.deadline.remaining();
  machine_.start(clock_now(), actions_);
  act();
  while (machine_.phase() < Exchange::Phase::kDone)
    wait(std::min(machine_.next_time(), reception_->next_time()));
  if (machine_.phase() == Exchange::Phase::kFailed) give_up();
  result_.dropped = reception_->counts();
  result_.store_operations = registry_.operations();
  return std::move(result_);
}

void Meeting::give_up() {
  const auto error = blame(store_, self_, machine_.failure(), where_, reception_->counts());
  const Moment end = clock_now() + kFarewell;
  const auto has_more_to_say = [&] {
    return machine_.unserved() > 0 ||
           std::ranges::any_of(incoming_, [](const auto& each) { return each.second.closing(); });
  };
  while (clock_now() < end && has_more_to_say()) wait(std::min(end, reception_->next_time()));
  part(store_, self_);
  if (own_) throw CommError(own_->code(), own_->why(), {.comm = self_.name, .rank = self_.rank});
  throw CommError(error);
}

void Meeting::act() {
  // An action may have consequences of its own.
  for (size_t i = 0; i < actions_.size(); ++i) act_on(Action(actions_[i]));
  actions_.clear();
}

void Meeting::act_on(const Action& action) {
  switch (action.kind) {
    case Kind::kPublish:
      try {
        registry_.publish(contact_);
      } catch (const CommError& e) {
        machine_.on_failed({Errc::kPeerFailed, -1, e.why()}, actions_);
      }
      return;
    case Kind::kLookUp:
      return look_up_source(action.peer);
    case Kind::kAsk:
      return ask(action);
    case Kind::kHangUp:
      // Connected, it has had its answer; otherwise this address is silent.
      return drop_outgoing(outgoing_ && outgoing_->dial.state() == Dial::State::kConnecting);
    case Kind::kAnswer: {
      const auto found = incoming_.find(action.link);
      if (found == incoming_.end()) return machine_.on_gone(action.round, action.link);
      const auto& contact =
          machine_.rounds().has_next(action.round) ? contacts_[action.round] : std::string();
      found->second.say(std::make_unique<AnswerWriter>(
          frame(FrameKind::kAnswer, action.peer, action.round), result_.blobs, contact));
      ++result_.frames;
      return flush(action.link);
    }
    case Kind::kTell:
      return queue_notice(action.link, machine_.failure());
    case Kind::kRefuse:
      return queue_notice(action.link, {Errc::kMismatch, -1,
                                        "two processes say that they are the same rank; give every "
                                        "process its own rank"});
    case Kind::kTellSource:
      return tell_source();
    case Kind::kProbe:
      return probe(action.peer);
    case Kind::kDone:
    case Kind::kFailed:
      return;
  }
}

void Meeting::look_up_source(int peer) {
  try {
    contacts_[0] = registry_.look_up(peer, self_.deadline.remaining());
    where_ = contacts_[0];
    machine_.on_contact(clock_now(), actions_);
  } catch (const CommError& e) {
    if (e.code() == Errc::kTimeout)  // its limit was what is left of this rank's
      machine_.on_time(std::max(clock_now(), machine_.next_time()), actions_);
    else
      machine_.on_failed({Errc::kPeerFailed, e.context().peer, e.why()}, actions_);
  }
}

Frame Meeting::frame(FrameKind kind, int to, int round) const {
  Frame made;
  made.kind = kind;
  made.round = static_cast<uint8_t>(round);
  made.from = door_.rank;
  made.to = to;
  made.size = door_.size;
  made.instance = door_.instance;
  made.job = door_.job;
  return made;
}

void Meeting::ask(const Action& action) {
  where_ = contacts_[action.round];
  outgoing_.reset(new Outgoing{Dial(where_, address_), action.round,
                               ReplyReader(door_, action.peer, action.round, result_.blobs)});
  if (outgoing_->dial.state() == Dial::State::kLost) not_reached();
}

void Meeting::drop_outgoing(bool to_try_another) {
  if (outgoing_) address_ = outgoing_->dial.address() + (to_try_another ? 1 : 0);
  outgoing_.reset();
}

void Meeting::not_reached() {
  const auto& dial = outgoing_->dial;
  const int error = dial.error();
  where_ = dial.contact() + (error == 0 ? "" : ": " + std::string(std::strerror(error)));
  if (base::is_resource_exhausted(error)) on_scarcity(error, "a connection to " + dial.contact());
  lose_outgoing(dial.refused());
}

void Meeting::lose_outgoing(bool refused) {
  drop_outgoing(/*to_try_another=*/true);
  machine_.on_lost(clock_now(), refused, actions_);
}

void Meeting::probe(int peer) {
  try {
    const auto [at, made] = probes_.insert_or_assign(peer, Dial(registry_.look_up(peer, kProbe)));
    if (at->second.state() != Dial::State::kConnecting) on_probe(peer);
  } catch (const CommError&) {
    // Who has not told where it listens has not come yet; the limit says how long that may take.
    machine_.on_probed(peer, true, actions_);
  }
}

void Meeting::on_probe(int peer) {
  const auto found = probes_.find(peer);
  if (found == probes_.end()) return;
  const auto state = found->second.on_ready();
  if (state == Dial::State::kConnecting) return;
  const bool alive = state == Dial::State::kConnected || !found->second.refused();
  if (!alive) where_ = found->second.contact();
  probes_.erase(found);
  machine_.on_probed(peer, alive, actions_);
}

void Meeting::queue_notice(uint32_t link, const Notice& notice) {
  const auto found = incoming_.find(link);
  if (found == incoming_.end()) return;
  auto& client = found->second;
  const int to = machine_.rounds().client(client.round);
  client.say(notice_bytes(frame(FrameKind::kNotice, to, client.round), notice));
  ++result_.frames;
  flush(link);
}

void Meeting::tell_source() {
  if (!outgoing_) return;
  const int round = outgoing_->round;
  const auto bytes = notice_bytes(frame(FrameKind::kNotice, machine_.rounds().source(round), round),
                                  machine_.failure());
  // A buffer that took the question takes this, too; if not, the source finds out by itself.
  static_cast<void>(
      ::send(outgoing_->dial.socket(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  ++result_.frames;
  outgoing_.reset();
}

Exchanged exchange(KeyValueStore& store, const Participant& self) {
  check(self);
  Meeting meeting(store, self);
  try {
    meeting.prepare();
  } catch (const CommError& e) {
    decline(store, self, e);
    throw;
  }
  return meeting.run();
}

}  // namespace torch::comms::bootstrap
