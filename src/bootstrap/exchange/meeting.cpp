#include "bootstrap/exchange/meeting.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>

#include "base/socket.hpp"
#include "bootstrap/attempt.hpp"
#include "bootstrap/exchange/answer.hpp"
#include "bootstrap/exchange/blame.hpp"
#include "bootstrap/exchange/dial.hpp"
#include "bootstrap/exchange/incoming.hpp"
#include "bootstrap/exchange/registry.hpp"

namespace torch::comms::bootstrap {
namespace {

using std::chrono::milliseconds;

constexpr size_t kPiece = 64 << 10;  // of an answer, read at once
// How long a rank that failed stays to tell why to those that are about to ask it.
constexpr milliseconds kFarewell{400};
constexpr milliseconds kSilence{10'000};  // of a connection whose host has vanished
constexpr milliseconds kAcceptPause{50};  // when there are no descriptors left

Moment clock_now() { return std::chrono::steady_clock::now().time_since_epoch(); }

struct Outgoing {
  Dial dial;
  int round = 0;
  ReplyReader reader;
};

class Meeting {
 public:
  Meeting(KeyValue& store, const Participant& self);
  Exchanged run();

 private:
  using Kind = Action::Kind;

  void act();
  void act_on(const Action& action);
  void ask(const Action& action);
  void look_up_source(int peer);
  void probe(int peer);
  void queue_notice(uint32_t link, const Notice& notice);
  void tell_source();
  Frame frame(FrameKind kind, int to, int round) const;

  void wait(Moment until);
  void accept_all();
  void on_incoming(uint32_t link, short events);
  void come_in(uint32_t link);
  void on_notice_bytes(Incoming& client, std::string_view bytes);
  void flush(uint32_t link);
  void drop(uint32_t link);
  void on_outgoing(short events);
  void on_reply(std::string_view bytes);
  void on_probe(int peer);
  void lose_outgoing(bool refused);
  void on_time();
  [[noreturn]] void give_up();

  KeyValue& store_;
  Registry registry_;
  const Participant& self_;
  Pace pace_;
  Exchanged result_;
  Door door_;
  base::FileDescriptor listener_;
  uint16_t port_ = 0;
  std::vector<std::string> contacts_;  // of the source of each round, as it becomes known
  Exchange machine_;
  std::unique_ptr<Reception> reception_;
  std::map<uint32_t, Incoming> incoming_;
  std::unique_ptr<Outgoing> outgoing_;
  std::map<int, Dial> probes_;
  uint32_t next_link_ = 1;
  Moment accept_again_{};
  Actions actions_;
  std::string where_;
};

Pace with_limit(Pace pace, const Deadline& deadline) {
  pace.limit = deadline.left();
  return pace;
}

Meeting::Meeting(KeyValue& store, const Participant& self)
    : store_(store),
      registry_(store, self),
      self_(self),
      pace_(with_limit(self.pace, self.deadline)),
      machine_(self.rank, self.size, pace_) {
  result_.blobs.resize(static_cast<size_t>(self.size));
  result_.blobs[static_cast<size_t>(self.rank)] = self.blob;
  contacts_.resize(static_cast<size_t>(std::max(1, machine_.rounds().number())));
}

Exchanged Meeting::run() {
  if (self_.size == 1) return std::move(result_);
  listener_ = base::listen_anywhere(port_);
  try {
    result_.secret = registry_.agree_on_secret();
  } catch (const CommError& e) {
    if (e.code() != Errc::kTimeout) throw;
    throw blame(store_, self_, {Errc::kTimeout, 0, "rank 0 has not put the job's secret there"}, "",
                "");
  }
  door_ = {self_.rank, self_.size, base::random_number(), result_.secret};
  reception_ = std::make_unique<Reception>(door_, self_.rules);
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
  throw error;
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
        registry_.publish(port_);
      } catch (const CommError& e) {
        machine_.on_store_lost(e.why(), actions_);
      }
      return;
    case Kind::kLookUp:
      return look_up_source(action.peer);
    case Kind::kAsk:
      return ask(action);
    case Kind::kHangUp:
      outgoing_.reset();
      return;
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
    contacts_[0] = registry_.look_up(peer, self_.deadline.left());
    where_ = contacts_[0];
    machine_.on_contact(clock_now(), actions_);
  } catch (const CommError& e) {
    if (e.code() == Errc::kTimeout)  // its limit was what is left of this rank's
      machine_.on_time(std::max(clock_now(), machine_.next_time()), actions_);
    else
      machine_.on_store_lost(e.why(), actions_);
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
  outgoing_.reset(new Outgoing{Dial(where_), action.round,
                               ReplyReader(door_, action.peer, action.round, result_.blobs)});
  if (outgoing_->dial.state() == Dial::State::kLost) lose_outgoing(outgoing_->dial.refused());
}

void Meeting::lose_outgoing(bool refused) {
  outgoing_.reset();
  machine_.on_lost(clock_now(), refused, actions_);
}

void Meeting::probe(int peer) {
  try {
    const auto [at, made] = probes_.insert_or_assign(peer, Dial(registry_.look_up(peer, kGrace)));
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

// One turn: waits for something to happen, at most until then, and deals with all of it.
void Meeting::wait(Moment until) {
  std::vector<pollfd> polled;
  std::vector<uint32_t> links;
  const Moment now = clock_now();
  const bool accepting = now >= accept_again_;
  polled.push_back({accepting ? listener_.get() : -1, POLLIN, 0});
  const short outgoing_events =
      outgoing_ && outgoing_->dial.state() == Dial::State::kConnecting ? POLLOUT : POLLIN;
  polled.push_back({outgoing_ ? outgoing_->dial.socket() : -1, outgoing_events, 0});
  for (const auto& [peer, dial] : probes_) {
    polled.push_back({dial.socket(), POLLOUT, 0});
    links.push_back(static_cast<uint32_t>(peer));
  }
  const size_t first_link = links.size();
  for (const auto& [link, each] : incoming_) {
    const int events = each.closing() ? POLLIN | POLLOUT : POLLIN;
    polled.push_back({each.socket.get(), static_cast<short>(events), 0});
    links.push_back(link);
  }
  if (!accepting) until = std::min(until, accept_again_);
  const auto left = std::chrono::ceil<milliseconds>(std::max(until - now, Moment::zero()));
  const auto count = ::poll(polled.data(), polled.size(),
                            static_cast<int>(std::min<int64_t>(left.count(), 60'000)));
  if (count > 0) {
    if (polled[1].revents != 0) on_outgoing(polled[1].revents);
    act();
    for (size_t i = 0; i < links.size(); ++i) {
      const short events = polled[i + 2].revents;
      if (events == 0) continue;
      if (i < first_link)
        on_probe(static_cast<int>(links[i]));
      else
        on_incoming(links[i], events);
      act();
    }
    if (polled[0].revents != 0) accept_all();
  }
  on_time();
  act();
}

void Meeting::on_time() {
  const Moment now = clock_now();
  machine_.on_time(now, actions_);
  Reception::Links close;
  reception_->on_time(now, close);
  for (const auto link : close) incoming_.erase(link);
}

void Meeting::accept_all() {
  Reception::Links close;
  // A flood of them must not keep this rank from its own work.
  for (int i = 0; i < 64; ++i) {
    base::FileDescriptor socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        accept_again_ = clock_now() + kAcceptPause;
      break;
    }
    const uint32_t link = next_link_++;
    base::tune(socket.get(), kSilence);
    incoming_[link].socket = std::move(socket);
    close.clear();
    reception_->on_open(link, clock_now(), close);
    for (const auto old : close) incoming_.erase(old);
    on_incoming(link, POLLIN);
    act();
  }
}

void Meeting::on_incoming(uint32_t link, short events) {
  const auto found = incoming_.find(link);
  if (found == incoming_.end()) return;
  auto& each = found->second;
  if ((events & POLLOUT) != 0 && each.closing()) return flush(link);
  char bytes[2048];
  const auto got =
      ::recv(each.socket.get(), bytes, each.round < 0 ? sizeof(Frame) : sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return drop(link);
  const std::string_view said(bytes, static_cast<size_t>(got));
  if (each.round >= 0) return on_notice_bytes(each, said);
  switch (reception_->on_bytes(link, said)) {
    case Reception::Answer::kNotYet:
      return;
    case Reception::Answer::kClose:
      incoming_.erase(link);
      return;
    case Reception::Answer::kComeIn:
      return come_in(link);
  }
}

void Meeting::come_in(uint32_t link) {
  const Frame question = reception_->question();
  auto& client = incoming_[link];
  client.round = question.round;
  client.reader =
      std::make_unique<ReplyReader>(door_, question.from, question.round, std::span<std::string>());
  const size_t before = actions_.size();
  machine_.on_ask(question.round, link, question.instance, actions_);
  const bool refused = std::any_of(
      actions_.begin() + static_cast<std::ptrdiff_t>(before), actions_.end(),
      [&](const Action& action) { return action.kind == Kind::kRefuse && action.link == link; });
  if (refused) return;
  std::erase_if(incoming_, [&](const auto& other) {
    return other.first != link && other.second.round == question.round;
  });
}

void Meeting::on_notice_bytes(Incoming& client, std::string_view bytes) {
  if (client.reader->take(bytes) == ReplyReader::State::kNotice)
    machine_.on_notice(machine_.rounds().client(client.round), client.reader->notice(), actions_);
}

void Meeting::drop(uint32_t link) {
  const auto found = incoming_.find(link);
  if (found == incoming_.end()) return;
  if (found->second.round >= 0)
    machine_.on_gone(found->second.round, link);
  else
    reception_->on_closed(link);
  incoming_.erase(found);
}

void Meeting::flush(uint32_t link) {
  const auto found = incoming_.find(link);
  if (found == incoming_.end()) return;
  switch (found->second.flush()) {
    case Incoming::State::kMore:
      return;
    case Incoming::State::kLost:
      return drop(link);
    case Incoming::State::kDone:
      const int round = found->second.round;
      incoming_.erase(found);
      if (machine_.phase() != Exchange::Phase::kFailed) machine_.on_served(round, actions_);
      return;
  }
}

void Meeting::on_outgoing(short) {
  auto& dial = outgoing_->dial;
  if (dial.state() == Dial::State::kConnecting) {
    if (dial.on_ready() == Dial::State::kConnecting) return;
    if (dial.state() == Dial::State::kLost) return lose_outgoing(dial.refused());
    machine_.on_connected();
    const int round = outgoing_->round;
    const Frame question = frame(FrameKind::kAsk, machine_.rounds().source(round), round);
    ++result_.frames;
    // A new socket's buffer has room for these few bytes.
    if (::send(dial.socket(), &question, sizeof question, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        static_cast<ssize_t>(sizeof question))
      lose_outgoing(false);
    return;
  }
  std::string bytes(kPiece, '\0');
  const auto got = ::recv(dial.socket(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return lose_outgoing(false);
  on_reply(std::string_view(bytes).substr(0, static_cast<size_t>(got)));
}

void Meeting::on_reply(std::string_view bytes) {
  const auto state = outgoing_->reader.take(bytes);
  const int round = outgoing_->round;
  switch (state) {
    case ReplyReader::State::kNotYet:
      return;
    case ReplyReader::State::kAnswer:
      if (machine_.rounds().has_next(round))
        contacts_[static_cast<size_t>(round) + 1] = outgoing_->reader.contact();
      machine_.on_answer(clock_now(), actions_);
      return;
    case ReplyReader::State::kNotice:
      machine_.on_notice(machine_.rounds().source(round), outgoing_->reader.notice(), actions_);
      return;
    case ReplyReader::State::kWrong:
      reception_->count(outgoing_->reader.wrong());
      return lose_outgoing(false);
  }
}

void check(const Participant& self) {
  if (self.size < 1 || self.size > kMaxRanks)
    throw CommError(Errc::kInvalidArgument, "the number of ranks is " + std::to_string(self.size) +
                                                "; allowed are 1 to " + std::to_string(kMaxRanks));
  if (self.rank < 0 || self.rank >= self.size)
    throw CommError(
        Errc::kInvalidArgument,
        "rank " + std::to_string(self.rank) + " is outside [0, " + std::to_string(self.size) + ")");
  if (self.blob.size() > kMaxBlobBytes)
    throw CommError(Errc::kTooLarge, "a rank has " + std::to_string(self.blob.size()) +
                                         " bytes to tell the others; at most " +
                                         std::to_string(kMaxBlobBytes));
}

}  // namespace

Exchanged exchange(KeyValue& store, const Participant& self) {
  check(self);
  return Meeting(store, self).run();
}

}  // namespace torch::comms::bootstrap
