#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/net/socket.hpp"
#include "base/os/system_error.hpp"
#include "bootstrap/address_exchange/exchange_session.hpp"
#include "bootstrap/address_exchange/failure_report.hpp"

namespace torch::comms::bootstrap {
namespace {

using std::chrono::milliseconds;

constexpr size_t kPiece = 64 << 10;  // bytes of a response per read
constexpr milliseconds kKeepAliveTimeout{
    10'000};                              // after which a connection to a vanished host fails
constexpr milliseconds kAcceptPause{50};  // before the next accept() without descriptors
constexpr milliseconds kShortageTimeout{1'000};  // a shortage this long fails the exchange
constexpr milliseconds kTick{50};                // between two calls of interrupt_check
constexpr milliseconds kMaxPoll{60'000};         // fits the int of poll()

}  // namespace

void ExchangeSession::poll_once(Moment until) {
  if (self_.interrupt_check) self_.interrupt_check();
  std::vector<pollfd> polled;
  std::vector<uint32_t> links;
  const Moment now = clock_now();
  const bool accepting = now >= accept_after_;
  polled.push_back({accepting ? listener_.get() : -1, POLLIN, 0});
  const short outgoing_events =
      outgoing_ && outgoing_->connector.state() == Connector::State::kConnecting ? POLLOUT : POLLIN;
  polled.push_back({outgoing_ ? outgoing_->connector.socket() : -1, outgoing_events, 0});
  for (const auto& [peer, connector] : probes_) {
    polled.push_back({connector.socket(), POLLOUT, 0});
    links.push_back(static_cast<uint32_t>(peer));
  }
  const size_t first_link = links.size();
  for (const auto& [link, each] : clients_) {
    const int events = each.is_closing() ? POLLIN | POLLOUT : POLLIN;
    polled.push_back({each.socket.get(), static_cast<short>(events), 0});
    links.push_back(link);
  }
  if (!accepting) until = std::min(until, accept_after_);
  const auto left = std::chrono::ceil<milliseconds>(std::max(until - now, Moment::zero()));
  const auto longest = self_.interrupt_check ? kTick : kMaxPoll;
  const auto count =
      ::poll(polled.data(), polled.size(), static_cast<int>(std::min(left, longest).count()));
  if (count > 0) {
    if (polled[1].revents != 0) on_outgoing(polled[1].revents);
    run_actions();
    for (size_t i = 0; i < links.size(); ++i) {
      const short events = polled[i + 2].revents;
      if (events == 0) continue;
      if (i < first_link)
        on_probe(static_cast<int>(links[i]));
      else
        on_incoming(links[i], events);
      run_actions();
    }
    if (polled[0].revents != 0) accept_all();
  }
  on_time();
  run_actions();
}

void ExchangeSession::on_time() {
  const Moment now = clock_now();
  protocol_.on_time(now, actions_);
  PendingConnections::ConnectionIds close;
  pending_->on_time(now, close);
  for (const auto link : close) clients_.erase(link);
}

void ExchangeSession::on_resource_exhausted(int error, const std::string& what) {
  const Moment now = clock_now();
  if (exhausted_since_ == kNever) exhausted_since_ = now;
  if (now - exhausted_since_ < kShortageTimeout ||
      protocol_.phase() >= ExchangeProtocol::ExchangePhase::kDone)
    return;
  own_error_ = base::system_error(error, what);
  protocol_.on_failed(notice_for_peers(self_, *own_error_), actions_);
}

void ExchangeSession::accept_all() {
  PendingConnections::ConnectionIds close;
  // The limit keeps a flood of connections from blocking this rank's own work.
  for (int i = 0; i < 64; ++i) {
    base::FileDescriptor socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (base::is_resource_exhausted(errno)) {
        accept_after_ = clock_now() + kAcceptPause;
        on_resource_exhausted(errno, "cannot accept connections of peer ranks");
      }
      break;
    }
    exhausted_since_ = kNever;
    const uint32_t link = next_link_++;
    base::set_keepalive_and_user_timeout(socket.get(), kKeepAliveTimeout);
    clients_[link].socket = std::move(socket);
    close.clear();
    pending_->on_open(link, clock_now(), close);
    for (const auto old : close) clients_.erase(old);
    on_incoming(link, POLLIN);
    run_actions();
  }
}

void ExchangeSession::on_incoming(uint32_t link, short events) {
  const auto found = clients_.find(link);
  if (found == clients_.end()) return;
  auto& each = found->second;
  if ((events & POLLOUT) != 0 && each.is_closing()) return flush(link);
  char bytes[2048];
  const auto got = ::recv(each.socket.get(), bytes,
                          each.round < 0 ? sizeof(ExchangeFrame) : sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return drop(link);
  const std::string_view received(bytes, static_cast<size_t>(got));
  if (each.round >= 0) return on_failure_bytes(each, received);
  switch (pending_->on_bytes(link, received)) {
    case PendingConnections::HandshakeStatus::kIncomplete:
      return;
    case PendingConnections::HandshakeStatus::kClose:
      clients_.erase(link);
      return;
    case PendingConnections::HandshakeStatus::kAccepted:
      return accept_client(link);
  }
}

void ExchangeSession::accept_client(uint32_t link) {
  const ExchangeFrame request = pending_->request();
  auto& client = clients_[link];
  client.round = request.round;
  client.reader = std::make_unique<ResponseReader>(own_id_, request.from, request.round,
                                                   std::span<std::string>());
  const size_t before = actions_.size();
  protocol_.on_request(request.round, link, request.instance, actions_);
  const bool refused =
      std::any_of(actions_.begin() + static_cast<std::ptrdiff_t>(before), actions_.end(),
                  [&](const ExchangeAction& action) {
                    return action.kind == Kind::kRejectDuplicate && action.link == link;
                  });
  if (refused) return;
  std::erase_if(clients_, [&](const auto& other) {
    return other.first != link && other.second.round == request.round;
  });
}

void ExchangeSession::on_failure_bytes(ClientConnection& client, std::string_view bytes) {
  if (client.reader->feed(bytes) == ResponseReader::State::kFailure)
    protocol_.on_peer_failure(protocol_.rounds().client(client.round), client.reader->failure(),
                              actions_);
}

void ExchangeSession::drop(uint32_t link) {
  const auto found = clients_.find(link);
  if (found == clients_.end()) return;
  if (found->second.round >= 0)
    protocol_.on_client_disconnected(found->second.round, link);
  else
    pending_->on_closed(link);
  clients_.erase(found);
}

void ExchangeSession::flush(uint32_t link) {
  const auto found = clients_.find(link);
  if (found == clients_.end()) return;
  switch (found->second.flush()) {
    case ClientConnection::State::kPending:
      return;
    case ClientConnection::State::kFailed:
      return drop(link);
    case ClientConnection::State::kDone:
      const int round = found->second.round;
      clients_.erase(found);
      if (protocol_.phase() != ExchangeProtocol::ExchangePhase::kFailed)
        protocol_.on_served(round, actions_);
      return;
  }
}

void ExchangeSession::on_outgoing(short) {
  auto& connector = outgoing_->connector;
  if (connector.state() == Connector::State::kConnecting) {
    if (connector.on_ready() == Connector::State::kConnecting) return;
    if (connector.state() == Connector::State::kFailed) return on_connect_failed();
    exhausted_since_ = kNever;
    protocol_.on_connected();
    const int round = outgoing_->round;
    const ExchangeFrame request =
        frame(ExchangeFrameKind::kRequest, protocol_.rounds().source(round), round);
    ++result_.frames;
    // The buffer of a new socket has room for these few bytes.
    if (::send(connector.socket(), &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        static_cast<ssize_t>(sizeof request))
      on_request_failed(false);
    return;
  }
  std::string bytes(kPiece, '\0');
  const auto got = ::recv(connector.socket(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return on_request_failed(false);
  on_response_bytes(std::string_view(bytes).substr(0, static_cast<size_t>(got)));
}

void ExchangeSession::on_response_bytes(std::string_view bytes) {
  const auto state = outgoing_->reader.feed(bytes);
  const int round = outgoing_->round;
  switch (state) {
    case ResponseReader::State::kIncomplete:
      return;
    case ResponseReader::State::kResponse:
      if (protocol_.rounds().has_next(round))
        contacts_[static_cast<size_t>(round) + 1] = outgoing_->reader.contact();
      protocol_.on_response(clock_now(), actions_);
      return;
    case ResponseReader::State::kFailure:
      protocol_.on_peer_failure(protocol_.rounds().source(round), outgoing_->reader.failure(),
                                actions_);
      return;
    case ResponseReader::State::kInvalid:
      pending_->count_drop(outgoing_->reader.drop_reason());
      return on_request_failed(false);
  }
}

}  // namespace torch::comms::bootstrap
