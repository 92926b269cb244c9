#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/handles.hpp"
#include "bootstrap/address_exchange/blob_exchange.hpp"
#include "bootstrap/address_exchange/client_connection.hpp"
#include "bootstrap/address_exchange/connector.hpp"
#include "bootstrap/address_exchange/contact_registry.hpp"
#include "bootstrap/address_exchange/exchange_protocol.hpp"
#include "bootstrap/address_exchange/pending_connections.hpp"
#include "bootstrap/address_exchange/response.hpp"

namespace torch::comms::bootstrap {

inline Moment clock_now() { return std::chrono::steady_clock::now().time_since_epoch(); }

// The question that is under way.
struct OutgoingRequest {
  Connector connector;
  int round = 0;
  ResponseReader reader;
};

// One call of exchange_blobs(): the state machine, the store and the sockets of one rank.
class ExchangeSession {
 public:
  ExchangeSession(KeyValueStore& store, const BlobExchangeParams& self);
  // What may keep this rank from taking part: throws CommError, and no other rank knows.
  void prepare();
  BlobExchangeResult run();

 private:
  using Kind = ExchangeAction::Kind;

  // What the state machine wants: meeting.cpp.
  void run_actions();
  void run_action(const ExchangeAction& action);
  void send_request(const ExchangeAction& action);
  void drop_outgoing(bool to_try_another);
  void on_connect_failed();
  void look_up_source(int peer);
  void probe(int peer);
  void queue_notice(uint32_t link, const FailureNotice& notice);
  void send_failure_to_source();
  ExchangeFrame frame(ExchangeFrameKind kind, int to, int round) const;

  // What comes from the sockets: meeting_sockets.cpp.
  // One turn: waits for something to happen, at most until then, and deals with all of it.
  void poll_once(Moment until);
  void accept_all();
  void on_incoming(uint32_t link, short events);
  void accept_client(uint32_t link);
  void on_failure_bytes(ClientConnection& client, std::string_view bytes);
  void flush(uint32_t link);
  void drop(uint32_t link);
  void on_outgoing(short events);
  void on_response_bytes(std::string_view bytes);
  void on_probe(int peer);
  void on_request_failed(bool refused);
  void on_time();
  // The system has refused what a connection takes. Others of this process may give some back.
  void on_resource_exhausted(int error, const std::string& what);
  [[noreturn]] void raise_failure();

  KeyValueStore& store_;
  ContactRegistry contact_registry_;
  const BlobExchangeParams& self_;
  ExchangeRetryPolicy retry_policy_;
  BlobExchangeResult result_;
  ExchangeEndpointId own_id_;
  base::FileDescriptor listener_;
  std::string own_contact_;            // of this rank
  std::vector<std::string> contacts_;  // of the source of each round, as it becomes known
  ExchangeProtocol protocol_;
  std::unique_ptr<PendingConnections> pending_;
  std::map<uint32_t, ClientConnection> clients_;
  std::unique_ptr<OutgoingRequest> outgoing_;
  // Which address of a source is tried first. Hosts of a job are alike: at that where one was
  // reached the next one may be, too.
  size_t first_address_ = 0;
  std::map<int, Connector> probes_;
  uint32_t next_link_ = 1;
  Moment accept_after_{};
  Moment exhausted_since_ = kNever;
  std::optional<CommError> own_error_;  // that ends the exchange: this rank's
  ExchangeActions actions_;
  std::string awaited_address_;
};

}  // namespace torch::comms::bootstrap
