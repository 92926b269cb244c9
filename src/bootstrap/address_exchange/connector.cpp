#include "bootstrap/address_exchange/connector.hpp"

#include <cerrno>
#include <chrono>
#include <sstream>

#include "base/net/socket.hpp"
#include "base/os/system_error.hpp"

namespace torch::comms::bootstrap {

Connector::Connector(std::string_view contact, size_t first) : contact_(contact), first_(first) {
  std::istringstream contact_stream(contact_);
  for (std::string address_text; contact_stream >> address_text;)
    addresses_.push_back(address_text);
  try_next();
}

void Connector::try_next() {
  for (state_ = State::kFailed; tried_ < addresses_.size();) {
    const auto address = base::parse_address(addresses_[(first_ + tried_++) % addresses_.size()]);
    if (!address) {
      is_refused_ = false;
      continue;
    }
    socket_ = base::begin_connect(*address);
    if (socket_) {
      state_ = State::kConnecting;
      return;
    }
    error_ = errno;
    is_refused_ = is_refused_ && error_ == ECONNREFUSED;
    if (base::is_resource_exhausted(error_)) return;  // the next address needs as many resources
  }
  if (addresses_.empty()) is_refused_ = false;
}

Connector::State Connector::on_ready() {
  if (state_ != State::kConnecting) return state_;
  error_ = base::connect_result(socket_.get());
  if (error_ == 0) {
    // A host that vanishes sends nothing: without this, peers would wait until their deadline.
    base::set_keepalive_and_user_timeout(socket_.get(), std::chrono::seconds(10));
    return state_ = State::kConnected;
  }
  is_refused_ = is_refused_ && error_ == ECONNREFUSED;
  socket_ = {};
  try_next();
  return state_;
}

}  // namespace torch::comms::bootstrap
