#pragma once

#include <string>

#include "bootstrap/address_exchange/blob_exchange.hpp"

namespace torch::comms::bootstrap {

std::string contact_prefix(const BlobExchangeParams& self);
std::string secret_key(const BlobExchangeParams& self);

// What a failed rank raises. The first to fail leaves its reason in the store; ranks that only
// suffer from that, as those that find a peer gone, raise the same one. `where` is the address that
// this rank was waiting for, `dropped` what PendingConnections counted.
CommError root_failure(KeyValueStore& store, const BlobExchangeParams& self,
                       const FailureNotice& failure, const std::string& where,
                       const std::string& dropped);

// How the other ranks hear that `error` keeps this one from taking part. A limit that has passed,
// or a peer that has failed, is told as it is.
FailureNotice notice_for_peers(const BlobExchangeParams& self, const CommError& error);

// Of a rank that is about to raise that. Rank 0, whose process often serves the store, returns when
// the others have read it, too; a second later at most.
void sync_before_raising(KeyValueStore& store, const BlobExchangeParams& self) noexcept;

}  // namespace torch::comms::bootstrap
