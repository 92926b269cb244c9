#pragma once

#include <string>

#include "bootstrap/address_exchange/blob_exchange.hpp"

namespace torch::comms::bootstrap {

// The store keys of an exchange.
std::string contact_prefix(const BlobExchangeParams& self);
std::string secret_key(const BlobExchangeParams& self);

// Returns the error that a failed rank raises. The first rank that fails publishes its reason in
// the store. Ranks that fail as a consequence raise the same reason. `where` is the address that
// this rank was waiting for; `dropped` is the text of PendingConnections::format_drops().
CommError root_failure(KeyValueStore& store, const BlobExchangeParams& self,
                       const FailureNotice& failure, const std::string& where,
                       const std::string& dropped);

// Returns what peers receive when `error` keeps this rank from taking part. A kTimeout or
// kPeerFailed is passed on unchanged; any other error becomes kPeerFailed of this rank.
FailureNotice notice_for_peers(const BlobExchangeParams& self, const CommError& error);

// Call it before raising the failure. Rank 0, whose process often serves the store, waits here
// until the peers have read the failure.
// Blocks: rank 0, for at most 1 s.
void sync_before_raising(KeyValueStore& store, const BlobExchangeParams& self) noexcept;

}  // namespace torch::comms::bootstrap
