#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "base/os/secret.hpp"
#include "bootstrap/address_exchange/exchange_protocol.hpp"
#include "bootstrap/address_exchange/pending_connections.hpp"
#include "bootstrap/key_value_store.hpp"
#include "bootstrap/timeout.hpp"

namespace torch::comms::bootstrap {

// What one rank passes to exchange_blobs().
struct BlobExchangeParams {
  std::string key_scope;  // prefix of all keys; equal on all ranks, used once
  std::string name;       // the communicator's name, for error texts
  int rank = 0;
  int size = 1;
  std::string blob;      // what this rank publishes: at most kMaxBlobBytes
  NamedTimeout timeout;  // for error texts
  Deadline deadline;     // when the exchange fails; the caller chooses the start
  std::optional<base::Secret> secret =
      {};  // the job's secret; none: rank 0 makes one and publishes it in the store
  std::string interface = {};             // where this rank listens: see choose_addresses()
  ExchangeRetryPolicy retry_policy = {};  // its timeout is not used
  PendingConnections::Options pending_options = {};
  // Called about 20 times a second while this rank waits for peers. An exception that it throws
  // ends the exchange on this rank. Used for Ctrl-C.
  std::function<void()> interrupt_check = {};
};

// What exchange_blobs() returns.
struct BlobExchangeResult {
  std::vector<std::string> blobs;  // by rank
  base::Secret secret = {};
  // Counts of this rank: store operations, frames sent, connections dropped ("" if none).
  int store_operations = 0, frames = 0;
  std::string dropped;
};

// Gives every rank the blobs of all ranks: the ExchangeProtocol over TCP, on the caller's thread.
// Each rank sends O(1) messages to the store and O(log size) messages to peers. The keys below
// `key_scope` stay in the store.
//
// While it runs, the rank listens on a port of its own. Other connections to that port (port scans,
// another job, garbage, silence) are dropped and counted. They cannot stop the ranks from
// connecting.
//
// Blocks: until no peer needs this rank any more; peers may still be exchanging, or fail later.
// Rank 0, whose process often serves the store, raises errors up to 1 s later, so that the peers
// can read them first.
// Throws: CommError that names the phase, the address, the missing ranks and how to raise the
// timeout:
// - kInvalidArgument: rank or size is out of range; kTooLarge: the blob is too large.
// - kTimeout: the deadline passed.
// - kPeerFailed: a needed rank ended, failed or declined. All ranks that still need it, directly or
//   not, raise this and name it. Also raised if the store is lost.
// - kMismatch: two processes have the same rank.
// - kResourceExhausted, kSystem: no port, or no descriptors for a second. The peers see the rank as
//   one that declines.
TC_API BlobExchangeResult exchange_blobs(KeyValueStore& store, const BlobExchangeParams& self);

// Ends the exchange for a rank that `error` keeps from taking part; call it instead of
// exchange_blobs(). Peers that wait for this rank read the reason at once and raise kPeerFailed.
// `keys` are other keys that this rank should have written, for read_peer_key(). The number of
// messages is constant; `self.blob` is not used.
TC_API void decline_exchange(KeyValueStore& store, const BlobExchangeParams& self,
                             const CommError& error,
                             const std::vector<std::string>& keys = {}) noexcept;

// Returns the value that another rank of the exchange writes at `key`; the value is not empty.
// Throws: as KeyValueStore::get(). If that rank has declined, throws the failure of the first rank
// that failed.
TC_API std::string read_peer_key(KeyValueStore& store, const BlobExchangeParams& self,
                                 const std::string& key, std::chrono::milliseconds limit);

}  // namespace torch::comms::bootstrap
