#include "bootstrap/address_exchange/blob_exchange.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/net/interfaces.hpp"
#include "base/net/socket.hpp"
#include "base/os/system_error.hpp"
#include "bootstrap/address_exchange/exchange_session.hpp"
#include "bootstrap/address_exchange/failure_report.hpp"
#include "bootstrap/arrival_attempt.hpp"
#include "bootstrap/ranks.hpp"

namespace torch::comms::bootstrap {
namespace {

// How long a failed rank keeps serving the failure to peers that still connect.
constexpr std::chrono::milliseconds kServeFailureTimeout{400};
// How long a probe waits for the peer's contact in the store; meanwhile this rank does nothing
// else.
constexpr std::chrono::milliseconds kProbe{800};

void check(const BlobExchangeParams& self) {
  validate_rank(self.rank, self.size);
  if (self.blob.size() > kMaxBlobBytes)
    throw CommError(Errc::kTooLarge, "rank " + std::to_string(self.rank) + " publishes " +
                                         std::to_string(self.blob.size()) + " bytes; at most " +
                                         std::to_string(kMaxBlobBytes) + " are allowed");
}

}  // namespace

ExchangeSession::ExchangeSession(KeyValueStore& store, const BlobExchangeParams& self)
    : store_(store),
      contact_registry_(store, self),
      self_(self),
      retry_policy_(self.retry_policy),
      protocol_(self.rank, self.size, retry_policy_) {
  result_.blobs.resize(static_cast<size_t>(self.size));
  result_.blobs[static_cast<size_t>(self.rank)] = self.blob;
  contacts_.resize(static_cast<size_t>(std::max(1, protocol_.rounds().count())));
}

void ExchangeSession::prepare() {
  if (self_.size == 1) return;
  uint16_t port = 0;
  listener_ = base::listen_on_all_interfaces(port);
  for (const auto& address :
       base::choose_addresses(base::interface_addresses(), self_.interface).addresses) {
    const auto text = base::format_address(address, port);
    if (own_contact_.size() + 1 + text.size() > kMaxContactBytes) break;
    own_contact_ += (own_contact_.empty() ? "" : " ") + text;
  }
  try {
    result_.secret = contact_registry_.agree_on_secret();
  } catch (const CommError& e) {
    if (e.code() != Errc::kTimeout) throw;
    throw root_failure(
        store_, self_,
        {Errc::kTimeout, 0, "rank 0 has not published the job's secret in the store"}, "", "");
  }
}

BlobExchangeResult ExchangeSession::run() {
  if (self_.size == 1) return std::move(result_);
  own_id_ = {self_.rank, self_.size, base::random_number(), result_.secret};
  pending_ = std::make_unique<PendingConnections>(own_id_, self_.pending_options);
  retry_policy_.timeout = self_.deadline.remaining();
  protocol_.start(clock_now(), actions_);
  run_actions();
  while (protocol_.phase() < ExchangeProtocol::ExchangePhase::kDone)
    poll_once(std::min(protocol_.next_time(), pending_->next_time()));
  if (protocol_.phase() == ExchangeProtocol::ExchangePhase::kFailed) raise_failure();
  result_.dropped = pending_->format_drops();
  result_.store_operations = contact_registry_.operations();
  return std::move(result_);
}

void ExchangeSession::raise_failure() {
  const auto error =
      root_failure(store_, self_, protocol_.failure(), awaited_address_, pending_->format_drops());
  const Moment end = clock_now() + kServeFailureTimeout;
  const auto has_unsent_notices = [&] {
    return protocol_.unserved() > 0 ||
           std::ranges::any_of(clients_, [](const auto& each) { return each.second.is_closing(); });
  };
  while (clock_now() < end && has_unsent_notices()) poll_once(std::min(end, pending_->next_time()));
  sync_before_raising(store_, self_);
  if (own_error_)
    throw CommError(own_error_->code(), own_error_->why(),
                    {.comm = self_.name, .rank = self_.rank});
  throw CommError(error);
}

void ExchangeSession::run_actions() {
  // An action may append further actions.
  for (size_t i = 0; i < actions_.size(); ++i) run_action(ExchangeAction(actions_[i]));
  actions_.clear();
}

void ExchangeSession::run_action(const ExchangeAction& action) {
  switch (action.kind) {
    case Kind::kPublish:
      try {
        contact_registry_.publish(own_contact_);
      } catch (const CommError& e) {
        protocol_.on_failed({Errc::kPeerFailed, -1, e.why()}, actions_);
      }
      return;
    case Kind::kLookUp:
      return look_up_source(action.peer);
    case Kind::kRequest:
      return send_request(action);
    case Kind::kDisconnect:
      // A connected source has sent its response. A source still connecting has a silent address,
      // so the next address is tried.
      return drop_outgoing(outgoing_ &&
                           outgoing_->connector.state() == Connector::State::kConnecting);
    case Kind::kRespond: {
      const auto found = clients_.find(action.link);
      if (found == clients_.end())
        return protocol_.on_client_disconnected(action.round, action.link);
      const auto& contact =
          protocol_.rounds().has_next(action.round) ? contacts_[action.round] : std::string();
      found->second.send(std::make_unique<ResponseWriter>(
          frame(ExchangeFrameKind::kResponse, action.peer, action.round), result_.blobs, contact));
      ++result_.frames;
      return flush(action.link);
    }
    case Kind::kSendFailure:
      return queue_notice(action.link, protocol_.failure());
    case Kind::kRejectDuplicate:
      return queue_notice(action.link,
                          {Errc::kMismatch, -1,
                           "two processes have the same rank; give every process its own "
                           "rank"});
    case Kind::kSendFailureToSource:
      return send_failure_to_source();
    case Kind::kProbe:
      return probe(action.peer);
    case Kind::kDone:
    case Kind::kFailed:
      return;
  }
}

void ExchangeSession::look_up_source(int peer) {
  try {
    contacts_[0] = contact_registry_.look_up(peer, self_.deadline.remaining());
    awaited_address_ = contacts_[0];
    protocol_.on_contact(clock_now(), actions_);
  } catch (const CommError& e) {
    if (e.code() == Errc::kTimeout)  // its timeout was this rank's remaining time
      protocol_.on_time(std::max(clock_now(), protocol_.next_time()), actions_);
    else
      protocol_.on_failed({Errc::kPeerFailed, e.context().peer, e.why()}, actions_);
  }
}

ExchangeFrame ExchangeSession::frame(ExchangeFrameKind kind, int to, int round) const {
  ExchangeFrame result;
  result.kind = kind;
  result.round = static_cast<uint8_t>(round);
  result.from = own_id_.rank;
  result.to = to;
  result.size = own_id_.size;
  result.instance = own_id_.instance;
  result.job = own_id_.job;
  return result;
}

void ExchangeSession::send_request(const ExchangeAction& action) {
  awaited_address_ = contacts_[action.round];
  outgoing_.reset(
      new OutgoingRequest{Connector(awaited_address_, first_address_), action.round,
                          ResponseReader(own_id_, action.peer, action.round, result_.blobs)});
  if (outgoing_->connector.state() == Connector::State::kFailed) on_connect_failed();
}

void ExchangeSession::drop_outgoing(bool to_try_another) {
  if (outgoing_) first_address_ = outgoing_->connector.address_index() + (to_try_another ? 1 : 0);
  outgoing_.reset();
}

void ExchangeSession::on_connect_failed() {
  const auto& connector = outgoing_->connector;
  const int error = connector.error();
  awaited_address_ =
      connector.contact() + (error == 0 ? "" : ": " + std::string(std::strerror(error)));
  if (base::is_resource_exhausted(error))
    on_resource_exhausted(error, "cannot connect to " + connector.contact());
  on_request_failed(connector.is_refused());
}

void ExchangeSession::on_request_failed(bool refused) {
  drop_outgoing(/*to_try_another=*/true);
  protocol_.on_disconnected(clock_now(), refused, actions_);
}

void ExchangeSession::probe(int peer) {
  try {
    const auto [at, is_new] =
        probes_.insert_or_assign(peer, Connector(contact_registry_.look_up(peer, kProbe)));
    if (at->second.state() != Connector::State::kConnecting) on_probe(peer);
  } catch (const CommError&) {
    // A rank that has not published its contact has not arrived yet; the deadline bounds that wait.
    protocol_.on_probed(peer, true, actions_);
  }
}

void ExchangeSession::on_probe(int peer) {
  const auto found = probes_.find(peer);
  if (found == probes_.end()) return;
  const auto state = found->second.on_ready();
  if (state == Connector::State::kConnecting) return;
  const bool alive = state == Connector::State::kConnected || !found->second.is_refused();
  if (!alive) awaited_address_ = found->second.contact();
  probes_.erase(found);
  protocol_.on_probed(peer, alive, actions_);
}

void ExchangeSession::queue_notice(uint32_t link, const FailureNotice& notice) {
  const auto found = clients_.find(link);
  if (found == clients_.end()) return;
  auto& client = found->second;
  const int to = protocol_.rounds().client(client.round);
  client.send_notice(notice_bytes(frame(ExchangeFrameKind::kFailure, to, client.round), notice));
  ++result_.frames;
  flush(link);
}

void ExchangeSession::send_failure_to_source() {
  if (!outgoing_) return;
  const int round = outgoing_->round;
  const auto bytes =
      notice_bytes(frame(ExchangeFrameKind::kFailure, protocol_.rounds().source(round), round),
                   protocol_.failure());
  // A socket buffer that took the request has room for this. Otherwise the source notices the
  // closed connection.
  static_cast<void>(::send(outgoing_->connector.socket(), bytes.data(), bytes.size(),
                           MSG_NOSIGNAL | MSG_DONTWAIT));
  ++result_.frames;
  outgoing_.reset();
}

BlobExchangeResult exchange_blobs(KeyValueStore& store, const BlobExchangeParams& self) {
  check(self);
  ExchangeSession session(store, self);
  try {
    session.prepare();
  } catch (const CommError& e) {
    decline_exchange(store, self, e);
    throw;
  }
  return session.run();
}

}  // namespace torch::comms::bootstrap
