#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/socket.hpp"
#include "base/system_error.hpp"
#include "bootstrap/exchange/blame.hpp"
#include "bootstrap/exchange/meeting_rank.hpp"

namespace torch::comms::bootstrap {
namespace {

using std::chrono::milliseconds;

constexpr size_t kPiece = 64 << 10;       // of an answer, read at once
constexpr milliseconds kSilence{10'000};  // of a connection whose host has vanished
constexpr milliseconds kAcceptPause{50};  // when there are no descriptors left
constexpr milliseconds kScarce{1'000};    // of those: it does not pass
constexpr milliseconds kTick{50};         // between looks at whether the caller wants out
constexpr milliseconds kLongest{60'000};  // that fits poll()

}  // namespace

void Meeting::wait(Moment until) {
  if (self_.interrupt) self_.interrupt();
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
  const auto longest = self_.interrupt ? kTick : kLongest;
  const auto count =
      ::poll(polled.data(), polled.size(), static_cast<int>(std::min(left, longest).count()));
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

void Meeting::on_scarcity(int error, const std::string& what) {
  const Moment now = clock_now();
  if (scarce_since_ == kNever) scarce_since_ = now;
  if (now - scarce_since_ < kScarce || machine_.phase() >= Exchange::Phase::kDone) return;
  own_ = base::system_error(error, what);
  machine_.on_failed(told_to_others(self_, *own_), actions_);
}

void Meeting::accept_all() {
  Reception::Links close;
  // A flood of them must not keep this rank from its own work.
  for (int i = 0; i < 64; ++i) {
    base::FileDescriptor socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (base::is_resource_exhausted(errno)) {
        accept_again_ = clock_now() + kAcceptPause;
        on_scarcity(errno, "a connection to another rank");
      }
      break;
    }
    scarce_since_ = kNever;
    const uint32_t link = next_link_++;
    base::set_keepalive_and_user_timeout(socket.get(), kSilence);
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
    if (dial.state() == Dial::State::kLost) return not_reached();
    scarce_since_ = kNever;
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

}  // namespace torch::comms::bootstrap
