#include "bootstrap/address_exchange/contact_registry.hpp"

#include <cstring>

#include "bootstrap/address_exchange/failure_report.hpp"

namespace torch::comms::bootstrap {

base::Secret ContactRegistry::agree_on_secret() {
  if (self_.secret) return *self_.secret;
  const auto key = secret_key(self_);
  ++operations_;
  if (self_.rank == 0) {
    const auto secret = base::random_secret();
    store_.set(key, {reinterpret_cast<const char*>(secret.data()), secret.size()});
    return secret;
  }
  const auto text = read_peer_key(store_, self_, key, self_.deadline.remaining());
  base::Secret secret;
  if (text.size() != secret.size())
    throw CommError(Errc::kSystem, "the store " + store_.address() + " returned a job secret of " +
                                       std::to_string(text.size()) + " bytes, expected " +
                                       std::to_string(secret.size()) +
                                       ": another program may write to its keys");
  std::memcpy(secret.data(), text.data(), secret.size());
  return secret;
}

void ContactRegistry::publish(const std::string& contact) {
  ++operations_;
  store_.set(contact_prefix(self_) + std::to_string(self_.rank), contact);
}

std::string ContactRegistry::look_up(int rank, std::chrono::milliseconds limit) {
  ++operations_;
  return read_peer_key(store_, self_, contact_prefix(self_) + std::to_string(rank), limit);
}

}  // namespace torch::comms::bootstrap
