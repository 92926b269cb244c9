#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "bootstrap/address_exchange/blob_exchange.hpp"

namespace torch::comms::bootstrap {

// What a rank of an exchange does at the store. The store is trusted: who reads it could as well
// take part. Throws as KeyValueStore does, and what read_peer_key() does.
class ContactRegistry {
 public:
  // Both outlive it.
  ContactRegistry(KeyValueStore& store, const BlobExchangeParams& self)
      : store_(store), self_(self) {}

  // The one that was given; else rank 0 makes it and the others wait for it.
  base::Secret agree_on_secret();
  // Tells where this rank listens.
  void publish(const std::string& contact);
  std::string look_up(int rank, std::chrono::milliseconds limit);
  int operations() const noexcept { return operations_; }

 private:
  KeyValueStore& store_;
  const BlobExchangeParams& self_;
  int operations_ = 0;
};

}  // namespace torch::comms::bootstrap
