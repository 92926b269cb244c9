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

// The request of the current round.
struct OutgoingRequest {
  Connector connector;
  int round = 0;
  ResponseReader reader;
};

// One call of exchange_blobs(): the state machine, the store and the sockets of one rank.
class ExchangeSession {
 public:
  ExchangeSession(KeyValueStore& store, const BlobExchangeParams& self);
  // Does everything that may keep this rank from taking part: it opens the port and reads the
  // secret.
  // Throws: CommError; peers have not been notified then.
  void prepare();
  // Runs the exchange. Blocks: until the exchange has ended. Throws: as exchange_blobs().
  BlobExchangeResult run();

 private:
  using Kind = ExchangeAction::Kind;

  // The actions of the state machine: exchange_session.cpp.
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

  // Events of the sockets: exchange_session_sockets.cpp.
  // Waits for events, at most until `until`, and handles them all.
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
  // Handles a resource that the system refused for a connection. Other connections of this process
  // may release some, so only a shortage of a second fails the rank.
  void on_resource_exhausted(int error, const std::string& what);
  [[noreturn]] void raise_failure();

  KeyValueStore& store_;
  ContactRegistry contact_registry_;
  const BlobExchangeParams& self_;
  ExchangeRetryPolicy retry_policy_;
  BlobExchangeResult result_;
  ExchangeEndpointId own_id_;
  base::FileDescriptor listener_;
  std::string own_contact_;            // published by this rank
  std::vector<std::string> contacts_;  // of the source of each round, once known
  ExchangeProtocol protocol_;
  std::unique_ptr<PendingConnections> pending_;
  std::map<uint32_t, ClientConnection> clients_;
  std::unique_ptr<OutgoingRequest> outgoing_;
  // The index of the source's address that is tried first. The hosts of a job are usually set up
  // the same, so the index that worked for one source is tried first for the next.
  size_t first_address_ = 0;
  std::map<int, Connector> probes_;
  uint32_t next_link_ = 1;
  Moment accept_after_{};
  Moment exhausted_since_ = kNever;
  std::optional<CommError> own_error_;  // the local error that ended the exchange
  ExchangeActions actions_;
  std::string awaited_address_;
};

}  // namespace torch::comms::bootstrap
