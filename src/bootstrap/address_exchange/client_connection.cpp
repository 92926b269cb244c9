#include "bootstrap/address_exchange/client_connection.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace torch::comms::bootstrap {
namespace {

constexpr size_t kPiece = 64 << 10;  // bytes of a response in memory at once

}  // namespace

void ClientConnection::send(std::unique_ptr<ResponseWriter> response) {
  writer_ = std::move(response);
  is_closing_ = true;
}

void ClientConnection::send_notice(const std::string& bytes) {
  out_ += bytes;
  is_closing_ = true;
}

ClientConnection::State ClientConnection::flush() {
  while (true) {
    if (sent_ == out_.size()) {
      out_.clear();
      sent_ = 0;
      if (writer_ && !writer_->write(kPiece, out_)) writer_.reset();
      if (out_.empty()) return State::kDone;
    }
    const auto sent =
        ::send(socket.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return State::kPending;
    if (sent <= 0) return State::kFailed;
    sent_ += static_cast<size_t>(sent);
  }
}

}  // namespace torch::comms::bootstrap
