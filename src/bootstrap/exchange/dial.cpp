#include "bootstrap/exchange/dial.hpp"

#include <cerrno>
#include <chrono>
#include <sstream>

#include "base/socket.hpp"
#include "base/system_error.hpp"

namespace torch::comms::bootstrap {

Dial::Dial(std::string_view contact, size_t first) : contact_(contact), first_(first) {
  std::istringstream words(contact_);
  for (std::string word; words >> word;) addresses_.push_back(word);
  try_next();
}

void Dial::try_next() {
  for (state_ = State::kLost; tried_ < addresses_.size();) {
    const auto address = base::parse_address(addresses_[(first_ + tried_++) % addresses_.size()]);
    if (!address) {
      refused_ = false;
      continue;
    }
    socket_ = base::begin_connect(*address);
    if (socket_) {
      state_ = State::kConnecting;
      return;
    }
    error_ = errno;
    refused_ = refused_ && error_ == ECONNREFUSED;
    if (base::is_resource_exhausted(error_)) return;  // the next address needs as much
  }
  if (addresses_.empty()) refused_ = false;
}

Dial::State Dial::on_ready() {
  if (state_ != State::kConnecting) return state_;
  error_ = base::connect_result(socket_.get());
  if (error_ == 0) {
    // A host that vanishes sends nothing: without this its peers would wait for their whole limit.
    base::set_keepalive_and_user_timeout(socket_.get(), std::chrono::seconds(10));
    return state_ = State::kConnected;
  }
  refused_ = refused_ && error_ == ECONNREFUSED;
  socket_ = {};
  try_next();
  return state_;
}

}  // namespace torch::comms::bootstrap
