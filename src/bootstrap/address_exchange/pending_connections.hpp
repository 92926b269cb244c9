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

// The connections that have not said yet who they are: of ranks, port scans, other jobs, anything.
// Each gets the memory of one header and a little time; of many the oldest gives way, so that a
// crowd of silent ones cannot keep a rank out. Without any input or output.
class TC_API PendingConnections {
 public:
  struct Options {
    size_t max_connections = 64;
    Moment handshake_timeout = std::chrono::seconds(5);
  };
  PendingConnections(const ExchangeEndpointId& door, const Options& rules)
      : own_id_(door), options_(rules) {}

  using ConnectionIds = std::vector<uint32_t>;
  // A connection came. Appends those to be closed for it.
  void on_open(uint32_t link, Moment now, ConnectionIds& close);
  enum class HandshakeStatus : uint8_t { kIncomplete, kAccepted, kClose };
  // A guest said something. kAccepted: it is request()'s sender, and no guest any more; bytes after
  // the question are dropped, for a rank says no more before it is answered. kClose: counted.
  HandshakeStatus on_bytes(uint32_t link, std::string_view bytes);
  void on_closed(uint32_t link);
  // Appends those that have been silent for too long.
  void on_time(Moment now, ConnectionIds& close);
  Moment next_time() const noexcept;

  const ExchangeFrame& request() const noexcept { return request_; }
  size_t count() const noexcept { return connections_.size(); }
  uint64_t dropped(DropReason why) const noexcept { return drops_[static_cast<size_t>(why)]; }
  void count_drop(DropReason why) noexcept { ++drops_[static_cast<size_t>(why)]; }
  // "dropped 12 connections: 10 not ours, 2 too slow"; empty if there were none.
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
