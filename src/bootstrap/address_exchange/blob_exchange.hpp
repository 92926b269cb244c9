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

// One rank that wants to know what all ranks have to say.
struct BlobExchangeParams {
  std::string key_scope;  // every key starts with it; equal on all ranks, used once
  std::string name;       // of the communicator: for error texts
  int rank = 0;
  int size = 1;
  std::string blob;      // for the others: at most kMaxBlobBytes
  NamedTimeout timeout;  // for the texts
  Deadline deadline;     // when to give up: the limit, counted from where the caller wants
  std::optional<base::Secret> secret = {};  // of the job; none: rank 0 makes one, the store tells
  std::string interface = {};               // to be reached at: see choose_addresses()
  ExchangeRetryPolicy retry_policy = {};    // its limit is not used
  PendingConnections::Options pending_options = {};
  // Called about 20 times a second while this rank waits for others; what it throws ends the
  // exchange here. For Ctrl-C.
  std::function<void()> interrupt_check = {};
};

struct BlobExchangeResult {
  std::vector<std::string> blobs;  // by rank
  base::Secret secret = {};
  // What it took, of this rank: store operations, frames sent, connections dropped ("" if none).
  int store_operations = 0, frames = 0;
  std::string dropped;
};

// Everybody's blob, on every rank: the ExchangeProtocol over TCP, on the caller's thread. O(1)
// messages a rank at the store, O(log size) between ranks. Returns when no other rank needs this
// one; others may still be exchanging, or fail. The keys below `scope` stay, as long as the store
// does.
//
// It listens on a port of its own while it runs. Whatever else connects there (port scans, another
// job, garbage, silence) is dropped and counted, and cannot keep the ranks from meeting.
//
// Throws CommError naming the phase, the address, the missing ranks and how to raise the limit:
// - kInvalidArgument: a rank, size or blob that cannot be;
// - kTimeout: the limit passed;
// - kPeerFailed: a rank ended, failed or declined while others needed it: all that still need it,
//   directly or not, raise this and name it; or the store is gone;
// - kSizeMismatch: a rank is here twice;
// - kResourceExhausted, kSystem: no port, no descriptors for a second. The others hear it as those
//   of a rank that declines.
// Rank 0, whose process often serves the store, raises them up to a second later: when the others
// have read them, too.
TC_API BlobExchangeResult exchange_blobs(KeyValueStore& store, const BlobExchangeParams& self);

// In place of that, of a rank that `error` keeps from it: those that wait for this rank learn the
// reason at once, and raise it as kPeerFailed. `keys`: others that this rank was to write, for
// read_peer_key(). A constant number of messages; `self.blob` is not used.
TC_API void decline_exchange(KeyValueStore& store, const BlobExchangeParams& self,
                             const CommError& error,
                             const std::vector<std::string>& keys = {}) noexcept;

// What another rank of the exchange writes at `key`, which is not empty. Throws as get() of the
// store, and where that rank has declined, why the first one did that failed.
TC_API std::string read_peer_key(KeyValueStore& store, const BlobExchangeParams& self,
                                 const std::string& key, std::chrono::milliseconds limit);

}  // namespace torch::comms::bootstrap
