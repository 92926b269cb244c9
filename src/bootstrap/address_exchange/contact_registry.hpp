#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "bootstrap/address_exchange/blob_exchange.hpp"

namespace torch::comms::bootstrap {

// The store operations of one rank in an exchange. The store is trusted: a process that can read it
// can also take part.
// Throws: as KeyValueStore and read_peer_key().
class ContactRegistry {
 public:
  // Lifetime: both arguments must outlive the object.
  ContactRegistry(KeyValueStore& store, const BlobExchangeParams& self)
      : store_(store), self_(self) {}

  // Returns the secret that was passed, if any. Otherwise rank 0 draws a secret and publishes it,
  // and the other ranks read it.
  base::Secret agree_on_secret();
  // Publishes where this rank listens.
  void publish(const std::string& contact);
  // Returns the contact of `rank`. Blocks: until that rank has published it, at most `limit`.
  std::string look_up(int rank, std::chrono::milliseconds limit);
  int operations() const noexcept { return operations_; }

 private:
  KeyValueStore& store_;
  const BlobExchangeParams& self_;
  int operations_ = 0;
};

}  // namespace torch::comms::bootstrap
