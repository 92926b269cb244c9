#include "bootstrap/exchange/registry.hpp"

#include <cstring>

#include "base/interfaces.hpp"
#include "base/socket.hpp"
#include "bootstrap/exchange/blame.hpp"

namespace torch::comms::bootstrap {

base::Secret Registry::agree_on_secret() {
  if (self_.secret) return *self_.secret;
  const auto key = self_.scope + "/secret";
  ++operations_;
  if (self_.rank == 0) {
    const auto secret = base::random_secret();
    store_.set(key, {reinterpret_cast<const char*>(secret.data()), secret.size()});
    return secret;
  }
  const auto text = store_.get(key, self_.deadline.left());
  base::Secret secret;
  if (text.size() != secret.size())
    throw CommError(Errc::kSystem, "the store " + store_.address() +
                                       " returned a secret that rank 0 did not write");
  std::memcpy(secret.data(), text.data(), secret.size());
  return secret;
}

void Registry::publish(uint16_t port) {
  std::string contact;
  for (const auto& address :
       base::choose_addresses(base::interface_addresses(), self_.interface).addresses) {
    const auto text = base::address_text(address, port);
    if (contact.size() + 1 + text.size() > kMaxContactBytes) break;
    contact += (contact.empty() ? "" : " ") + text;
  }
  ++operations_;
  store_.set(contact_prefix(self_) + std::to_string(self_.rank), contact);
}

std::string Registry::look_up(int rank, std::chrono::milliseconds limit) {
  ++operations_;
  return store_.get(contact_prefix(self_) + std::to_string(rank), limit);
}

}  // namespace torch::comms::bootstrap
