#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "bootstrap/address_exchange/exchange_frame.hpp"
#include "bootstrap/address_exchange/exchange_protocol.hpp"

namespace torch::comms::bootstrap {

// The accepted connections that have not sent a whole request yet: ranks, port scans, other jobs.
// Each has the memory of one header and a handshake timeout. When the table is full, the oldest
// connection is closed, so that silent connections cannot keep a rank out. It does no input or
// output.
class TC_API PendingConnections {
 public:
  struct Options {
    size_t max_connections = 64;
    Moment handshake_timeout = std::chrono::seconds(5);
  };
  PendingConnections(const ExchangeEndpointId& own_id, const Options& options)
      : own_id_(own_id), options_(options) {}

  using ConnectionIds = std::vector<uint32_t>;
  // Adds a connection. Appends to `close` the connections to be closed for it.
  void on_open(uint32_t link, Moment now, ConnectionIds& close);
  enum class HandshakeStatus : uint8_t { kIncomplete, kAccepted, kClose };
  // Handles bytes from a pending connection. kAccepted: request() is its request, and it is no
  // longer pending. Bytes after the request are dropped, because a rank sends nothing more before
  // the response. kClose: the connection must be closed; it has been counted.
  HandshakeStatus on_bytes(uint32_t link, std::string_view bytes);
  void on_closed(uint32_t link);
  // Appends to `close` the connections whose handshake timeout has passed.
  void on_time(Moment now, ConnectionIds& close);
  Moment next_time() const noexcept;

  const ExchangeFrame& request() const noexcept { return request_; }
  size_t count() const noexcept { return connections_.size(); }
  uint64_t dropped(DropReason why) const noexcept { return drops_[static_cast<size_t>(why)]; }
  void count_drop(DropReason why) noexcept { ++drops_[static_cast<size_t>(why)]; }
  // Returns a text such as "dropped 12 connections: 10 with an unknown protocol, 2 too large";
  // empty if none were dropped.
  std::string format_drops() const;

 private:
  struct PendingConnection {
    uint32_t link = 0;
    Moment since{};
    size_t bytes_read = 0;
    ExchangeFrame frame = {};
  };
  std::vector<PendingConnection>::iterator find(uint32_t link);

  ExchangeEndpointId own_id_;
  Options options_;
  std::vector<PendingConnection> connections_;  // the oldest first
  std::array<uint64_t, kDropReasons> drops_{};
  ExchangeFrame request_;
};

}  // namespace torch::comms::bootstrap
