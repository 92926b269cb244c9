#include "bootstrap/address_exchange/failure_report.hpp"

#include <chrono>
#include <functional>
#include <utility>

#include "base/os/log.hpp"
#include "bootstrap/ranks.hpp"

namespace torch::comms::bootstrap {
namespace {

// How long to wait for a value that another rank is about to write.
constexpr std::chrono::milliseconds kReadTimeout{800};
// How long rank 0 stays for peers that have not read the failure.
constexpr std::chrono::milliseconds kAcknowledgeTimeout{1000};

FailureNotice own_reason(KeyValueStore& store, const BlobExchangeParams& self,
                         const FailureNotice& failure, const std::string& where,
                         const std::string& dropped) {
  FailureNotice reason = failure;
  reason.reason = "while exchanging addresses, " + failure.reason;
  if (!where.empty()) reason.reason += " (" + where + ")";
  if (failure.code == Errc::kTimeout) {
    reason.reason += " within " + format_duration(self.timeout.duration) +
                     " (the timeout of rank " + std::to_string(self.rank) + ")";
    const auto absent = missing_ranks(store, contact_prefix(self), self.size);
    if (!absent.empty()) {
      reason.reason += "; " + format_ranks(absent, self.size) + " did not arrive";
      reason.peer = absent.size() == 1 ? absent[0] : -1;
    }
  }
  reason.reason += "; store " + store.address();
  if (!dropped.empty()) reason.reason += "; rank " + std::to_string(self.rank) + " " + dropped;
  if (failure.code == Errc::kTimeout)
    reason.reason +=
        ". Check that those processes run and can be reached; if they only need more time, raise " +
        self.timeout.setting;
  return reason;
}

FailureNotice read_published_failure(KeyValueStore& store, const BlobExchangeParams& self) {
  if (auto notice = parse_notice(store.get(self.key_scope + "/verdict", kReadTimeout), self.size))
    return std::move(*notice);
  throw CommError(Errc::kSystem,
                  "the store " + store.address() + " returned a failure report that no rank wrote");
}

// Publishes the failure of this rank unless another rank failed first. Returns: the failure of the
// first rank.
FailureNotice publish_failure(KeyValueStore& store, const BlobExchangeParams& self,
                              const std::function<FailureNotice()>& make) {
  if (store.add(self.key_scope + "/claim", 1) != 1) return read_published_failure(store, self);
  const auto notice = make();
  store.set(self.key_scope + "/verdict", to_bytes(notice));
  return notice;
}

CommError error_of(const FailureNotice& reason, const BlobExchangeParams& self) {
  const int peer = reason.peer == self.rank ? -1 : reason.peer;
  return {
      reason.code, reason.reason, {.op = "", .comm = self.name, .rank = self.rank, .peer = peer}};
}

}  // namespace

std::string contact_prefix(const BlobExchangeParams& self) { return self.key_scope + "/contact/"; }
std::string secret_key(const BlobExchangeParams& self) { return self.key_scope + "/secret"; }

CommError root_failure(KeyValueStore& store, const BlobExchangeParams& self,
                       const FailureNotice& failure, const std::string& where,
                       const std::string& dropped) {
  FailureNotice reason = failure;
  try {
    reason = publish_failure(store, self,
                             [&] { return own_reason(store, self, failure, where, dropped); });
  } catch (const CommError& e) {
    reason.reason = "while exchanging addresses, " + failure.reason +
                    (where.empty() ? "" : " (" + where + ")") +
                    "; the first failure could not be read from the store: " + e.why();
  }
  return error_of(reason, self);
}

FailureNotice notice_for_peers(const BlobExchangeParams& self, const CommError& error) {
  if (error.code() == Errc::kTimeout || error.code() == Errc::kPeerFailed)
    return {error.code(), error.context().peer, error.why()};
  return {Errc::kPeerFailed, self.rank,
          "rank " + std::to_string(self.rank) + " cannot connect: " + error.why()};
}

void sync_before_raising(KeyValueStore& store, const BlobExchangeParams& self) noexcept {
  const std::string acknowledged_key = self.key_scope + "/heard",
                    all_acknowledged_key = acknowledged_key + "/all";
  try {
    if (self.rank == 0)
      store.get(all_acknowledged_key, kAcknowledgeTimeout);
    else if (store.add(acknowledged_key, 1) == self.size - 1)
      store.set(all_acknowledged_key, "yes");
  } catch (const std::exception&) {
    // The failure itself is what the caller raises.
  }
}

void decline_exchange(KeyValueStore& store, const BlobExchangeParams& self, const CommError& error,
                      const std::vector<std::string>& keys) noexcept {
  if (self.size == 1) return;
  try {
    publish_failure(store, self, [&] { return notice_for_peers(self, error); });
    // An empty value sends the ranks that wait for it to the published failure.
    store.set(contact_prefix(self) + std::to_string(self.rank), "");
    if (self.rank == 0 && !self.secret) store.set(secret_key(self), "");
    for (const auto& key : keys) store.set(key, "");
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kDebug,
              std::string("cannot publish the failure to peer ranks: ") + e.what());
  }
  sync_before_raising(store, self);
}

std::string read_peer_key(KeyValueStore& store, const BlobExchangeParams& self,
                          const std::string& key, std::chrono::milliseconds limit) {
  auto value = store.get(key, limit);
  if (!value.empty()) return value;
  throw error_of(read_published_failure(store, self), self);
}

}  // namespace torch::comms::bootstrap
