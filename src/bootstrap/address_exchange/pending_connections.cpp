#include "bootstrap/address_exchange/pending_connections.hpp"

#include <algorithm>
#include <numeric>

namespace torch::comms::bootstrap {

std::vector<PendingConnections::PendingConnection>::iterator PendingConnections::find(
    uint32_t link) {
  return std::ranges::find(connections_, link, &PendingConnection::link);
}

void PendingConnections::on_open(uint32_t link, Moment now, ConnectionIds& close) {
  if (connections_.size() == options_.max_connections) {
    close.push_back(connections_.front().link);
    count_drop(DropReason::kEvicted);
    connections_.erase(connections_.begin());
  }
  connections_.push_back({.link = link, .since = now});
}

PendingConnections::HandshakeStatus PendingConnections::on_bytes(uint32_t link,
                                                                 std::string_view bytes) {
  const auto connection = find(link);
  if (connection == connections_.end()) return HandshakeStatus::kClose;
  const size_t part = std::min(bytes.size(), sizeof connection->frame - connection->bytes_read);
  std::copy_n(bytes.begin(), part,
              reinterpret_cast<char*>(&connection->frame) + connection->bytes_read);
  connection->bytes_read += part;
  auto why = DropReason::kNone;
  // A connection with a wrong magic number is closed at once.
  if (connection->bytes_read >= sizeof connection->frame.magic &&
      connection->frame.magic != ExchangeFrame::kMagic)
    why = DropReason::kUnknownProtocol;
  else if (connection->bytes_read < sizeof connection->frame)
    return HandshakeStatus::kIncomplete;
  else
    why = request_drop_reason(connection->frame, own_id_);
  request_ = connection->frame;
  connections_.erase(connection);
  if (why == DropReason::kNone) return HandshakeStatus::kAccepted;
  count_drop(why);
  return HandshakeStatus::kClose;
}

void PendingConnections::on_closed(uint32_t link) {
  const auto connection = find(link);
  if (connection == connections_.end()) return;
  count_drop(DropReason::kClosedEarly);
  connections_.erase(connection);
}

void PendingConnections::on_time(Moment now, ConnectionIds& close) {
  while (!connections_.empty() && now >= next_time()) {
    close.push_back(connections_.front().link);
    count_drop(DropReason::kHandshakeTimeout);
    connections_.erase(connections_.begin());
  }
}

Moment PendingConnections::next_time() const noexcept {
  return connections_.empty() ? kNever : connections_.front().since + options_.handshake_timeout;
}

std::string PendingConnections::format_drops() const {
  const auto all = std::accumulate(drops_.begin(), drops_.end(), uint64_t{0});
  std::string text;
  for (size_t i = 0; i < drops_.size(); ++i)
    if (drops_[i] > 0)
      text += (text.empty() ? ": " : ", ") + std::to_string(drops_[i]) + " " +
              std::string(to_text(static_cast<DropReason>(i)));
  if (all == 0) return {};
  return "dropped " + std::to_string(all) + (all == 1 ? " connection" : " connections") + text;
}

}  // namespace torch::comms::bootstrap
